// SPDX-License-Identifier: Apache-2.0
// JSON in: simdjson parses the whole text, then its tape is copied into our tree. Depth is checked before a level is
// entered, so the copy recurses at most kMaxJsonDepth deep.
#include "base/json.h"

#include <algorithm>
#include <functional>
#include <new>

#include <simdjson.h>

#include "base/check.h"
#include "base/files.h"
#include "base/json_locate.h"

namespace switchyard {
namespace {

namespace dom = simdjson::dom;

/// Copies simdjson's tree. The first fault is kept with its path, which grows while the recursion unwinds.
class TreeBuilder {
 public:
  bool build(dom::element from, int depth, Json* to) {
    switch (from.type()) {
      case dom::element_type::ARRAY:
        return build_array(dom::array(from), depth + 1, to);
      case dom::element_type::OBJECT:
        return build_object(dom::object(from), depth + 1, to);
      case dom::element_type::INT64:
        *to = Json(int64_t(from));
        return true;
      case dom::element_type::UINT64:
        *to = Json(uint64_t(from));
        return true;
      case dom::element_type::DOUBLE:
        *to = Json(double(from));
        return true;
      case dom::element_type::STRING:
        *to = Json(std::string(std::string_view(from)));
        return true;
      case dom::element_type::BOOL:
        *to = Json(bool(from));
        return true;
      case dom::element_type::NULL_VALUE:
        *to = Json();
        return true;
    }
    SWITCHYARD_UNREACHABLE("a simdjson type");
  }

  const std::string& fault() const { return fault_; }
  const std::string& path() const { return path_; }

 private:
  bool build_array(dom::array from, int depth, Json* to) {
    if (depth > kMaxJsonDepth) return too_deep();
    Json::Array items;
    items.reserve(from.size());
    for (const dom::element item : from) {
      Json& place = items.emplace_back();
      if (build(item, depth, &place)) continue;
      path_ = fmt::format("[{}]{}", items.size() - 1, path_);
      return false;
    }
    *to = Json(std::move(items));
    return true;
  }

  bool build_object(dom::object from, int depth, Json* to) {
    if (depth > kMaxJsonDepth) return too_deep();
    Json::Object members;
    members.reserve(from.size());
    for (const dom::key_value_pair member : from) {
      auto& [name, place] = members.emplace_back(std::string(member.key), Json());
      if (build(member.value, depth, &place)) continue;
      path_ = fmt::format(".{}{}", name, path_);
      return false;
    }
    if (!unique_names(members)) return false;
    *to = Json(std::move(members));
    return true;
  }

  bool too_deep() {
    fault_ = fmt::format("nesting deeper than {}", kMaxJsonDepth);
    return false;
  }

  /// Sorting, not a hash table: crafted names must not make it quadratic.
  bool unique_names(const Json::Object& members) {
    std::vector<std::pair<size_t, const std::string*>> names;
    names.reserve(members.size());
    for (const auto& [name, value] : members)
      names.emplace_back(std::hash<std::string>{}(name), &name);
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : *a.second < *b.second;
    });
    const auto twice = std::adjacent_find(
        names.begin(), names.end(),
        [](const auto& a, const auto& b) { return a.first == b.first && *a.second == *b.second; });
    if (twice == names.end()) return true;
    fault_ = fmt::format("the member name \"{}\" occurs twice in one object", *twice->second);
    return false;
  }

  std::string fault_, path_;
};

/// The message of a text that simdjson refused, with the place where our own scan sees the fault.
Error parse_fault(std::string_view text, std::string_view name, std::string_view reason) {
  const JsonFault fault = locate_json_fault(text);
  if (!fault.found) return fail(Code::bad_file, "{}: not valid JSON: {}", name, reason);
  return fail(Code::bad_file, "{}: not valid JSON at byte {}: {}", name, fault.offset, fault.what);
}

Result<Json> parse(std::string_view text, std::string_view name) {
  // Newer releases of simdjson skip a byte order mark; RFC 8259 lets us refuse it, and we always do.
  if (text.starts_with("\xEF\xBB\xBF")) return parse_fault(text, name, "a byte order mark");
  dom::parser parser;
  dom::element root;
  const simdjson::error_code code = parser.parse(text.data(), text.size()).get(root);
  if (code == simdjson::MEMALLOC) {
    return fail(Code::out_of_memory, "{}: no memory to parse {} bytes of JSON", name, text.size());
  }
  if (code != simdjson::SUCCESS) return parse_fault(text, name, simdjson::error_message(code));
  TreeBuilder builder;
  Json json;
  if (builder.build(root, 0, &json)) return json;
  const JsonFault fault = locate_json_fault(text);
  return fail(Code::bad_file, "{}: {}{} (at ${})", name, builder.fault(),
              fault.found ? fmt::format(", byte {}", fault.offset) : "", builder.path());
}

}  // namespace

std::string_view Json::kind_name() const noexcept {
  constexpr std::string_view kNames[] = {"null", "boolean", "integer", "unsigned integer",
                                         "real", "string",  "array",   "object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  SWITCHYARD_CHECK(is_bool(), "JSON is {}", kind_name());
  return *std::get_if<bool>(&value_);
}

int64_t Json::as_int() const {
  SWITCHYARD_CHECK(is_integer(), "JSON is {}", kind_name());
  return *std::get_if<int64_t>(&value_);
}

uint64_t Json::as_unsigned() const {
  SWITCHYARD_CHECK(kind() == Kind::unsigned_integer, "JSON is {}", kind_name());
  return *std::get_if<uint64_t>(&value_);
}

double Json::as_double() const {
  SWITCHYARD_CHECK(is_number(), "JSON is {}", kind_name());
  if (const auto* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
  if (const auto* natural = std::get_if<uint64_t>(&value_)) return static_cast<double>(*natural);
  return *std::get_if<double>(&value_);
}

const std::string& Json::as_string() const {
  SWITCHYARD_CHECK(is_string(), "JSON is {}", kind_name());
  return *std::get_if<std::string>(&value_);
}

const Json::Array& Json::as_array() const {
  SWITCHYARD_CHECK(is_array(), "JSON is {}", kind_name());
  return *std::get_if<Array>(&value_);
}

const Json::Object& Json::as_object() const {
  SWITCHYARD_CHECK(is_object(), "JSON is {}", kind_name());
  return *std::get_if<Object>(&value_);
}

const Json* Json::find(std::string_view key) const noexcept {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<Json> parse_json(std::string_view text, std::string_view name) {
  try {
    return parse(text, name);
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "{}: no memory for {} bytes of JSON", name, text.size());
  } catch (const simdjson::simdjson_error& error) {
    return fail(Code::internal, "{}: simdjson: {}", name, error.what());
  }
}

Result<Json> read_json_file(const std::string& path, uint64_t max_bytes) {
  SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, max_bytes));
  return parse_json(text, path);
}

}  // namespace switchyard
