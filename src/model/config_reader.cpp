// SPDX-License-Identifier: Apache-2.0
#include "model/config_reader.h"

#include <cmath>

namespace switchyard::model {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 30;

// A short form of a value for messages.
std::string show(const Json& value) {
  std::string text;
  JsonWriter(text).value(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool means_nothing(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  return value.is_string() && value.as_string().empty();
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {}

bool ConfigReader::has(std::string_view key) const {
  const Json* value = object_.find(key);
  return value != nullptr && !value->is_null();
}

const Json* ConfigReader::read(std::string_view key) {
  read_.emplace(key);
  return has(key) ? object_.find(key) : nullptr;
}

Error ConfigReader::wrong_type(std::string_view key, std::string_view expected,
                               const Json& found) const {
  return fail(Code::bad_file, "{}: key '{}': expected {}, found {} {}", where_, key, expected,
              found.kind_name(), show(found));
}

Result<int64_t> ConfigReader::integer(std::string_view key, int64_t low, int64_t high,
                                      std::optional<int64_t> fallback) {
  const Json* value = read(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(Code::bad_file, "{}: key '{}' is missing: expected an integer of [{}, {}]", where_,
                key, low, high);
  }
  const std::string expected = fmt::format("an integer of [{}, {}]", low, high);
  if (!value->is_integer()) return wrong_type(key, expected, *value);
  if (value->as_int() < low || value->as_int() > high) return wrong_type(key, expected, *value);
  return value->as_int();
}

Result<int> ConfigReader::size(std::string_view key, std::optional<int> fallback) {
  SWITCHYARD_ASSIGN(const int64_t value, integer(key, 1, kMaxSize, fallback));
  return static_cast<int>(value);
}

Result<int> ConfigReader::size_of_either(std::string_view key, std::string_view newer,
                                         std::optional<int> fallback) {
  if (!has(newer)) return size(key, fallback);
  SWITCHYARD_ASSIGN(const int value, size(newer));
  SWITCHYARD_ASSIGN(const int other, size(key, value));
  if (other == value) return value;
  return fail(Code::bad_file, "{}: keys '{}' ({}) and '{}' ({}) disagree", where_, key, other,
              newer, value);
}

Result<int> ConfigReader::count(std::string_view key, std::optional<int> fallback) {
  SWITCHYARD_ASSIGN(const int64_t value, integer(key, 0, kMaxSize, fallback));
  return static_cast<int>(value);
}

Result<double> ConfigReader::real(std::string_view key, std::optional<double> fallback) {
  const Json* value = read(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(Code::bad_file, "{}: key '{}' is missing: expected a number", where_, key);
  }
  if (!value->is_number() || !std::isfinite(value->as_double())) {
    return wrong_type(key, "a finite number", *value);
  }
  return value->as_double();
}

Result<bool> ConfigReader::boolean(std::string_view key, bool fallback) {
  const Json* value = read(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return wrong_type(key, "true or false", *value);
  return value->as_bool();
}

Result<std::string> ConfigReader::text(std::string_view key, std::optional<std::string> fallback) {
  const Json* value = read(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(Code::bad_file, "{}: key '{}' is missing: expected a string", where_, key);
  }
  if (!value->is_string()) return wrong_type(key, "a string", *value);
  return value->as_string();
}

Result<std::vector<int64_t>> ConfigReader::integers(std::string_view key) {
  std::vector<int64_t> numbers;
  const Json* value = read(key);
  if (value == nullptr) return numbers;
  if (value->is_integer()) return std::vector<int64_t>{value->as_int()};
  if (!value->is_array()) return wrong_type(key, "an integer or an array of integers", *value);
  for (const Json& element : value->as_array()) {
    if (!element.is_integer()) return wrong_type(key, "integers in the array", element);
    numbers.push_back(element.as_int());
  }
  return numbers;
}

Result<std::vector<std::string>> ConfigReader::texts(std::string_view key) {
  std::vector<std::string> strings;
  const Json* value = read(key);
  if (value == nullptr) return strings;
  if (!value->is_array()) return wrong_type(key, "an array of strings", *value);
  for (const Json& element : value->as_array()) {
    if (!element.is_string()) return wrong_type(key, "strings in the array", element);
    strings.push_back(element.as_string());
  }
  return strings;
}

const Json* ConfigReader::member(std::string_view key) { return read(key); }

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

Status ConfigReader::require_text(std::string_view key, std::string_view value,
                                  std::string_view why) {
  SWITCHYARD_ASSIGN(const std::string found, text(key, std::string(value)));
  if (found == value) return {};
  return fail(Code::unsupported, "{}: key '{}' is \"{}\"; only \"{}\" can be run: {}", where_, key,
              found, value, why);
}

Status ConfigReader::require_false(std::string_view key, std::string_view why) {
  SWITCHYARD_ASSIGN(const bool found, boolean(key, false));
  if (!found) return {};
  return fail(Code::unsupported, "{}: key '{}' is true, which cannot be run: {}", where_, key, why);
}

Status ConfigReader::finish(std::string_view family) const {
  for (const auto& [key, value] : object_.as_object()) {
    if (read_.contains(key) || means_nothing(value)) continue;
    return fail(Code::unsupported,
                "{}: key '{}' (value {}) is unknown to the family {}: it may change what the model "
                "computes, so it is refused; remove the key if it is known to change nothing",
                where_, key, show(value), family);
  }
  return {};
}

}  // namespace switchyard::model
