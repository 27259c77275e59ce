// SPDX-License-Identifier: Apache-2.0
// The texts of HTTP: a reply's head, a target's path, a chunk.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace switchyard::serve {

/// What a reply's head depends on besides the reply.
struct HeadShape {
  enum class Length : unsigned char { fixed, chunked, until_close };
  Length length = Length::fixed;
  bool keep_alive = true;
};

/// Status line and headers with the empty line.
std::string head_text(const HttpReply& reply, const HeadShape& shape);

/// The path of an origin-form target, percent-decoded, without the query. Nothing for other forms, for broken escapes,
/// for escaped control characters, and for dots that would walk up.
std::optional<std::string> path_of(std::string_view target);

/// `data` as one chunk of a chunked body. Not for empty data, which would end the body.
std::string chunk_text(std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace switchyard::serve
