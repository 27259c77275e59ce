// SPDX-License-Identifier: Apache-2.0
#include "grammar/validator.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>

namespace switchyard::grammar {
namespace {

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) {
    return a.as_array().size() == b.as_array().size() &&
           std::equal(a.as_array().begin(), a.as_array().end(), b.as_array().begin(), equal);
  }
  if (a.is_object()) {
    if (a.as_object().size() != b.as_object().size()) return false;
    return std::all_of(a.as_object().begin(), a.as_object().end(), [&](const Json::Member& member) {
      const Json* other = b.find(member.first);
      return other != nullptr && equal(member.second, *other);
    });
  }
  if (a.is_string()) return a.as_string() == b.as_string();
  if (a.is_bool()) return a.as_bool() == b.as_bool();
  return true;
}

bool is_whole(const Json& value) {
  return value.is_number() && value.as_double() == std::floor(value.as_double());
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return is_whole(value);
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  return type == "array" ? value.is_array() : value.is_object();
}

bool type_fits(const Json& value, const Json& type) {
  if (type.is_string()) return has_type(value, type.as_string());
  return std::any_of(type.as_array().begin(), type.as_array().end(),
                     [&](const Json& one) { return has_type(value, one.as_string()); });
}

size_t num_characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

double number_of(const Json& schema, const char* keyword, double otherwise) {
  const Json* value = schema.find(keyword);
  return value == nullptr ? otherwise : value->as_double();
}

bool string_fits(const Json& value, const Json& schema) {
  const auto length = static_cast<double>(num_characters(value.as_string()));
  if (length < number_of(schema, "minLength", 0) || length > number_of(schema, "maxLength", 1e18))
    return false;
  const Json* pattern = schema.find("pattern");
  return pattern == nullptr ||
         std::regex_search(value.as_string(), std::regex(pattern->as_string()));
}

bool array_fits(const Json& value, const Json& schema, const Json& document) {
  const auto count = static_cast<double>(value.as_array().size());
  if (count < number_of(schema, "minItems", 0) || count > number_of(schema, "maxItems", 1e18))
    return false;
  const Json* prefix = schema.find("prefixItems");
  const Json* items = schema.find("items");
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const Json* rule =
        prefix != nullptr && i < prefix->as_array().size() ? &prefix->as_array()[i] : items;
    if (rule != nullptr && !is_valid(value.as_array()[i], *rule, document)) return false;
  }
  return true;
}

bool object_fits(const Json& value, const Json& schema, const Json& document) {
  const Json* properties = schema.find("properties");
  const Json* others = schema.find("additionalProperties");
  if (const Json* required = schema.find("required"))
    for (const Json& name : required->as_array())
      if (value.find(name.as_string()) == nullptr) return false;
  for (const auto& [name, member] : value.as_object()) {
    const Json* rule = properties == nullptr ? nullptr : properties->find(name);
    if (rule == nullptr) rule = others;
    if (rule != nullptr && !is_valid(member, *rule, document)) return false;
  }
  return true;
}

const Json& target(const std::string& pointer, const Json& document) {
  if (pointer == "#") return document;
  constexpr size_t kDefs = sizeof("#/$defs/") - 1;
  return *document.find("$defs")->find(pointer.substr(kDefs));
}

/// A reader by recursion; numbers and strings are left to parse_json.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::optional<Json> whole() {
    auto value = read();
    return value && at_ == text_.size() ? value : std::nullopt;
  }

 private:
  bool take(char byte) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != byte) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::optional<Json> scalar() {
    const size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
        if (text_[at_] == '\\') ++at_;
      at_ = std::min(at_ + 1, text_.size());
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']' && text_[at_] != '}')
        ++at_;
    }
    auto value = parse_json(text_.substr(start, at_ - start), "scalar");
    if (!value.ok()) return std::nullopt;
    return *std::move(value);
  }

  std::optional<Json> read() {
    if (take('[')) {
      Json::Array items;
      if (take(']')) return Json(std::move(items));
      do {
        auto item = read();
        if (!item) return std::nullopt;
        items.push_back(*std::move(item));
      } while (take(','));
      return take(']') ? std::optional(Json(std::move(items))) : std::nullopt;
    }
    if (!take('{')) return scalar();
    Json::Object members;
    if (take('}')) return Json(std::move(members));
    do {
      skip_space();
      auto key = scalar();
      if (!key || !key->is_string() || !take(':')) return std::nullopt;
      skip_space();
      auto value = read();
      if (!value) return std::nullopt;
      members.emplace_back(key->as_string(), *std::move(value));
    } while (take(','));
    return take('}') ? std::optional(Json(std::move(members))) : std::nullopt;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool is_valid(const Json& value, const Json& schema, const Json& document) {
  if (schema.is_bool()) return schema.as_bool();
  const auto valid = [&](const Json& one) { return is_valid(value, one, document); };
  if (const Json* ref = schema.find("$ref"); ref && !valid(target(ref->as_string(), document)))
    return false;
  if (const Json* type = schema.find("type"); type && !type_fits(value, *type)) return false;
  if (const Json* constant = schema.find("const"); constant && !equal(value, *constant))
    return false;
  if (const Json* list = schema.find("enum")) {
    const auto& values = list->as_array();
    if (std::none_of(values.begin(), values.end(), [&](const Json& v) { return equal(v, value); }))
      return false;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {  // oneOf as anyOf, as the grammar takes it
    const Json* list = schema.find(keyword);
    if (list && std::none_of(list->as_array().begin(), list->as_array().end(), valid)) return false;
  }
  const Json* all = schema.find("allOf");
  if (all && !std::all_of(all->as_array().begin(), all->as_array().end(), valid)) return false;
  if (value.is_number())
    return value.as_double() >= number_of(schema, "minimum", -1e300) &&
           value.as_double() <= number_of(schema, "maximum", 1e300);
  if (value.is_string()) return string_fits(value, schema);
  if (value.is_array()) return array_fits(value, schema, document);
  return !value.is_object() || object_fits(value, schema, document);
}

std::optional<Json> read_json(std::string_view text) { return Reader(text).whole(); }

}  // namespace switchyard::grammar
