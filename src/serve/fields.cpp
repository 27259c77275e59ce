// SPDX-License-Identifier: Apache-2.0
#include "serve/fields.h"

#include <cmath>
#include <limits>

namespace switchyard::serve {
namespace {

bool is_whole(const Json& json) {
  return json.is_integer() || json.kind() == Json::Kind::unsigned_integer;
}

}  // namespace

const Json* Fields::find(std::string_view name) const noexcept {
  const Json* found = object_.find(name);
  return found != nullptr && found->is_null() ? nullptr : found;
}

const Json* Fields::expect(std::string_view name, bool (*right)(const Json&), const char* what) {
  const Json* found = find(name);
  if (error_ || found == nullptr) return nullptr;
  if (right(*found)) return found;
  refuse(
      refuse_field(name, "invalid_value", "{} is {}, expected {}", name, json_text(*found), what));
  return nullptr;
}

void Fields::integer(std::string_view name, int64_t low, int64_t high, int& value) {
  const Json* found = expect(name, is_whole, "an integer");
  if (found == nullptr) return;
  if (!found->is_integer() || found->as_int() < low || found->as_int() > high)
    return refuse(refuse_field(name, "invalid_value", "{} is {}, expected an integer in [{}, {}]",
                               name, json_text(*found), low, high));
  value = static_cast<int>(found->as_int());
}

void Fields::number(std::string_view name, double low, double high, float& value) {
  const Json* found = expect(
      name, [](const Json& json) { return json.is_number(); }, "a number");
  if (found == nullptr) return;
  const double given = found->as_double();
  if (!(given >= low && given <= high))
    return refuse(refuse_field(name, "invalid_value", "{} is {}, expected a number in [{}, {}]",
                               name, json_text(*found), low, high));
  value = static_cast<float>(given);
}

void Fields::flag(std::string_view name, bool& value) {
  const Json* found = expect(
      name, [](const Json& json) { return json.is_bool(); }, "true or false");
  if (found != nullptr) value = found->as_bool();
}

void Fields::text(std::string_view name, std::string& value) {
  const Json* found = expect(
      name, [](const Json& json) { return json.is_string(); }, "a string");
  if (found != nullptr) value = found->as_string();
}

void Fields::seed(std::string_view name, std::optional<uint64_t>& value) {
  const Json* found = expect(name, is_whole, "an integer");
  if (found == nullptr) return;
  value = found->is_integer() ? static_cast<uint64_t>(found->as_int()) : found->as_unsigned();
}

void Fields::strings(std::string_view name, size_t most, std::vector<std::string>& value) {
  const Json* found = find(name);
  if (error_ || found == nullptr) return;
  if (found->is_string()) {
    value.assign(1, found->as_string());
    return;
  }
  if (!found->is_array())
    return refuse(refuse_field(name, "invalid_value", "{} is {}, expected a string or an array",
                               name, json_text(*found)));
  if (found->as_array().size() > most)
    return refuse(refuse_field(name, "invalid_value", "{} has {} strings, expected at most {}",
                               name, found->as_array().size(), most));
  value.clear();
  for (const Json& item : found->as_array()) {
    if (!item.is_string())
      return refuse(refuse_field(name, "invalid_value", "{} holds {}, expected strings", name,
                                 json_text(item)));
    value.push_back(item.as_string());
  }
}

void Fields::token_ids(std::string_view name, size_t most, std::vector<int32_t>& value) {
  const Json* found = expect(
      name, [](const Json& json) { return json.is_array(); }, "an array of token ids");
  if (found == nullptr) return;
  if (found->as_array().size() > most)
    return refuse(refuse_field(name, "invalid_value", "{} has {} ids, expected at most {}", name,
                               found->as_array().size(), most));
  if (auto error = read_token_ids(*found, name, value)) refuse(*std::move(error));
}

std::optional<ApiError> read_token_ids(const Json& array, std::string_view at,
                                       std::vector<int32_t>& ids) {
  ids.clear();
  ids.reserve(array.as_array().size());
  for (const Json& item : array.as_array()) {
    if (!item.is_integer() || item.as_int() < 0 ||
        item.as_int() > std::numeric_limits<int32_t>::max())
      return refuse_field(at, "invalid_value", "{} holds {}, expected token ids", at,
                          json_text(item));
    ids.push_back(static_cast<int32_t>(item.as_int()));
  }
  return std::nullopt;
}

std::optional<ApiError> check_text(std::string_view text, std::string_view at) {
  const size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return std::nullopt;
  return refuse_field(at, "invalid_value", "{} holds a NUL character at byte {}", at, nul);
}

}  // namespace switchyard::serve
