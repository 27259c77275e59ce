// SPDX-License-Identifier: Apache-2.0
// ApiError: what a client is told when it is refused, in the shape that OpenAI's clients read.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/http.h"

namespace switchyard::serve {

struct ApiError {
  int status = 400;
  std::string code;     ///< "invalid_value"
  std::string message;  ///< for a person
  std::string param;    ///< the field that is to blame; empty: none
};

/// A refusal of one field.
template <class... Args>
ApiError refuse_field(std::string_view param, std::string_view code,
                      fmt::format_string<Args...> format, Args&&... args) {
  return {400, std::string(code), fmt::format(format, std::forward<Args>(args)...),
          std::string(param)};
}

/// The one table from the library's failures to statuses.
ApiError api_error(const Error& error);

/// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);
HttpReply error_reply(const ApiError& error);

}  // namespace switchyard::serve
