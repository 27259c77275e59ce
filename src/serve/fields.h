// SPDX-License-Identifier: Apache-2.0
// Fields: reads the members of a request's object with their kinds and ranges. The first wrong one is kept as the
// error, named; later reads then do nothing. An explicit null equals absent.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/api_error.h"

namespace switchyard::serve {

class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  /// The member, unless it is absent or null.
  const Json* find(std::string_view name) const noexcept;

  void integer(std::string_view name, int64_t low, int64_t high, int& value);
  void number(std::string_view name, double low, double high, float& value);
  void flag(std::string_view name, bool& value);
  void text(std::string_view name, std::string& value);
  /// Any integer; negative ones wrap.
  void seed(std::string_view name, std::optional<uint64_t>& value);
  /// A string or an array of strings.
  void strings(std::string_view name, size_t most, std::vector<std::string>& value);
  void token_ids(std::string_view name, size_t most, std::vector<int32_t>& value);

  void refuse(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<ApiError>& error() const noexcept { return error_; }

 private:
  const Json* expect(std::string_view name, bool (*right)(const Json&), const char* what);

  const Json& object_;
  std::optional<ApiError> error_;
};

/// The ids of a JSON array of integers, or why it is not one. `at` names it in messages.
std::optional<ApiError> read_token_ids(const Json& array, std::string_view at,
                                       std::vector<int32_t>& ids);
/// Refuses text that holds NUL.
std::optional<ApiError> check_text(std::string_view text, std::string_view at);

}  // namespace switchyard::serve
