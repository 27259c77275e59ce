// SPDX-License-Identifier: Apache-2.0
// Pattern: {"String": ...} or {"Regex": ...}, as Split and Replace have it.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace switchyard::text {

class Pattern {
 public:
  static Result<Pattern> read(const Json& json, const std::string& where);

  /// All matches from left to right, none inside another.
  Result<std::vector<Span>> find_all(std::string_view text) const;

  /// The text of a String pattern; null for a Regex.
  const std::string* literal() const { return std::get_if<std::string>(&what_); }

 private:
  std::variant<std::string, Regex> what_;
};

}  // namespace switchyard::text
