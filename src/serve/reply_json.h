// SPDX-License-Identifier: Apache-2.0
// The JSON of answers: whole ones and the chunks of a stream, for both endpoints.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "switchyard/request.h"

#include "serve/call.h"

namespace switchyard::serve {

/// What is the same in everything that one call is answered with.
struct ReplyFrame {
  Endpoint endpoint = Endpoint::chat;
  std::string id, model;
  int64_t created = 0;  ///< seconds since 1970
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
  int64_t cached_tokens = 0;  ///< of prompt_tokens: not computed again
};

struct Choice {
  std::string text;
  FinishReason finish = FinishReason::none;
  int64_t output_tokens = 0;
  std::optional<RequestMoe> moe;  ///< when asked for
};

/// The object of a call that does not stream.
std::string whole_json(const ReplyFrame& frame, std::span<const Choice> choices,
                       const Usage& usage);

/// What a chunk says of one choice.
struct Delta {
  int index = 0;
  std::string_view text{};
  bool role = false;  ///< names the role: the first of a chat choice
  FinishReason finish = FinishReason::none;
  const RequestMoe* moe = nullptr;
};
/// One "data: ..." event with its blank line.
std::string chunk_event(const ReplyFrame& frame, const Delta& delta, const Usage* usage);
/// The event after the last choice, when usage was asked for: no choices.
std::string usage_event(const ReplyFrame& frame, const Usage& usage);
std::string error_event(const ApiError& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace switchyard::serve
