// SPDX-License-Identifier: Apache-2.0
// Target: the server that is asked, from its URL.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace switchyard::client {

struct Target {
  std::string host;  ///< "127.0.0.1", "::1", "server.example"
  uint16_t port = 80;
  std::string prefix;     ///< before every path: "" or "/models/a"
  std::string host_text;  ///< of the Host header: "[::1]:8000"
};

/// "http://127.0.0.1:8000", with or without a path; a "/v1" at its end is left out, since paths bring it. Errors:
/// Code::bad_request.
Result<Target> parse_target(std::string_view url);

/// A request as it goes over the wire. A body makes it a POST of JSON.
struct RequestText {
  std::string path;     ///< "/v1/models"
  std::string body;     ///< empty: a GET
  std::string api_key;  ///< empty: none
};
std::string request_text(const Target& target, const RequestText& request);

}  // namespace switchyard::client
