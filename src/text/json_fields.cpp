// SPDX-License-Identifier: Apache-2.0
// Typed reads of JSON members; every message names the path.
#include "text/json_fields.h"

#include <algorithm>

namespace switchyard::text {

Result<Fields> Fields::of(const Json& json, std::string where) {
  if (!json.is_object()) {
    return fail(Code::bad_file, "{}: expected an object, found {}", where, json.kind_name());
  }
  Fields fields;
  fields.json_ = &json;
  fields.where_ = std::move(where);
  return fields;
}

const Json* Fields::find(std::string_view name) {
  known_.push_back(name);
  const Json* member = json_->find(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

Result<const Json*> Fields::require(std::string_view name) {
  const Json* member = find(name);
  if (member == nullptr) return fail(Code::bad_file, "{} is missing", at(name));
  return member;
}

Error Fields::wrong_type(std::string_view name, std::string_view expected,
                         const Json& found) const {
  return fail(Code::bad_file, "{}: expected {}, found {}", at(name), expected, found.kind_name());
}

Result<bool> Fields::boolean(std::string_view name, bool otherwise) {
  const Json* member = find(name);
  if (member == nullptr) return otherwise;
  if (!member->is_bool()) return wrong_type(name, "true or false", *member);
  return member->as_bool();
}

Result<std::string> Fields::string(std::string_view name) {
  SWITCHYARD_ASSIGN(const Json* member, require(name));
  if (!member->is_string()) return wrong_type(name, "a string", *member);
  return member->as_string();
}

Result<std::string> Fields::string(std::string_view name, std::string_view otherwise) {
  const Json* member = find(name);
  if (member == nullptr) return std::string(otherwise);
  if (!member->is_string()) return wrong_type(name, "a string", *member);
  return member->as_string();
}

Result<int64_t> Fields::integer(std::string_view name, int64_t otherwise) {
  const Json* member = find(name);
  if (member == nullptr) return otherwise;
  if (!member->is_integer()) return wrong_type(name, "an integer", *member);
  return member->as_int();
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

Status Fields::finish() const {
  for (const auto& [name, value] : json_->as_object()) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      return fail(Code::unsupported, "{} is not known: this program cannot follow the file",
                  at(name));
    }
  }
  return {};
}

}  // namespace switchyard::text
