// SPDX-License-Identifier: Apache-2.0
#include "serve/call_text.h"

#include <algorithm>

namespace switchyard::serve {
namespace {

constexpr size_t kMaxDigits = 18;
constexpr std::string_view kNumber = "+-.eE0123456789", kSpaces = " \n\t\r";

/// Behind the string that begins at `at`.
size_t end_of_string(std::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at)
    if (json[at] == '\\') ++at;
  return std::min(at + 1, json.size());
}

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpaces), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

}  // namespace

std::string with_long_integers_as_reals(std::string_view json) {
  std::string out;
  for (size_t at = 0; at < json.size();) {
    size_t end = at + 1;
    if (json[at] == '"') end = end_of_string(json, at);
    const bool number = kNumber.find(json[at]) != std::string_view::npos;
    if (number) end = std::min(json.find_first_not_of(kNumber, at), json.size());
    const std::string_view part = json.substr(at, end - at);
    out += part;
    if (number && part.size() > kMaxDigits && part.find_first_of(".eE") == std::string_view::npos)
      out += "e0";
    at = end;
  }
  return out;
}

std::string_view member_text(std::string_view object, std::string_view name) {
  int depth = 0;
  size_t value = 0;         // where the value begins whose end is looked for
  std::string_view string;  // the last one of the object itself
  for (size_t at = 0; at < object.size(); ++at) {
    const char c = object[at];
    if (c == '"') {
      const size_t end = end_of_string(object, at);
      if (depth == 1) string = object.substr(at + 1, end - at - 2);
      at = end - 1;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    const bool ends = depth == 0 || (depth == 1 && c == ',');
    if (ends && value > 0) return trimmed(object.substr(value, at - value));
    if (c == ':' && depth == 1 && string == name) value = at + 1;
  }
  return "";
}

}  // namespace switchyard::serve
