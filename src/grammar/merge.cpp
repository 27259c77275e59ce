// SPDX-License-Identifier: Apache-2.0
// allOf, and what stands beside anyOf: several schemas as one, keyword by keyword. What one schema cannot say is refused.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "grammar/schema.h"

namespace switchyard::grammar {
namespace {

constexpr int kMaxParts = 64;
constexpr int kMaxHops = 64;

Json* find(Json::Object& object, std::string_view name) {
  const auto at = std::find_if(object.begin(), object.end(),
                               [&](const Json::Member& member) { return member.first == name; });
  return at == object.end() ? nullptr : &at->second;
}

Json::Array as_list(const Json& value) {
  return value.is_array() ? value.as_array() : Json::Array{value};
}

std::string text_of(const Json& json) {
  std::string text;
  JsonWriter(text).value(json);
  return text;
}

/// The texts of values, to find one among many.
std::unordered_set<std::string> texts_of(const Json::Array& values) {
  std::unordered_set<std::string> texts;
  for (const Json& value : values) texts.insert(text_of(value));
  return texts;
}

Json both(const Json& a, const Json& b) {
  return same(a, b) ? a : Json(Json::Object{{"allOf", Json(Json::Array{a, b})}});
}

/// Types in both; "integer" is in "number".
Json::Array common_types(const Json& a, const Json& b) {
  const auto of_b = texts_of(as_list(b));
  Json::Array common;
  for (const Json& type : as_list(a)) {
    const std::string text = text_of(type);
    if (of_b.contains(text) || (text == "\"integer\"" && of_b.contains("\"number\""))) {
      common.push_back(type);
    } else if (text == "\"number\"" && of_b.contains("\"integer\"")) {
      common.emplace_back("integer");
    }
  }
  return common;
}

Json common_values(const Json& a, const Json& b) {
  const auto of_b = texts_of(as_list(b));
  Json::Array common = as_list(a);
  std::erase_if(common, [&](const Json& value) { return !of_b.contains(text_of(value)); });
  return Json(std::move(common));
}

Json united(const Json& a, const Json& b) {
  Json::Array all = as_list(a);
  auto texts = texts_of(all);
  for (const Json& value : as_list(b))
    if (texts.insert(text_of(value)).second) all.push_back(value);
  return Json(std::move(all));
}

Json merged_properties(const Json& a, const Json& b) {
  Json::Object all = a.as_object();
  for (const auto& [name, schema] : b.as_object()) {
    if (Json* before = find(all, name)) {
      *before = both(*before, schema);
    } else {
      all.emplace_back(name, schema);
    }
  }
  return Json(std::move(all));
}

/// The parts that are said together, flat, with $ref followed.
class Parts {
 public:
  Status add(Node part) {
    for (int hops = 0; part.schema->is_object() && part.has("$ref"); ++hops) {
      if (hops == kMaxHops)
        return bad_keyword(part, "$ref", fmt::format("leads on more than {} times", kMaxHops));
      if (says_more_than(part, {"$ref"}))
        return bad_keyword(part, "$ref", "beside other keywords, inside allOf, is not supported");
      SWITCHYARD_ASSIGN(part, follow(part));
    }
    if (part.schema->is_bool() && part.schema->as_bool()) return {};
    SWITCHYARD_TRY(check_keywords(part));
    if (std::ssize(parts_) >= kMaxParts)
      return bad_keyword(part, "allOf", fmt::format("more than {} schemas together", kMaxParts));
    parts_.push_back(part);
    return {};
  }

  /// With the parts of each allOf in its place. A part that contains itself ends at kMaxParts.
  Status flatten() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Node part = parts_[i];
      SWITCHYARD_ASSIGN(const Json* const list, find_array(part, "allOf"));
      if (list == nullptr) continue;
      for (size_t k = 0; k < list->as_array().size(); ++k)
        SWITCHYARD_TRY(add(part.child(list->as_array()[k], fmt::format("allOf/{}", k))));
    }
    return {};
  }

  const std::vector<Node>& list() const noexcept { return parts_; }

 private:
  std::vector<Node> parts_;
};

bool is_closed(const Node& part) {
  const Json* more = part.find("additionalProperties");
  return more != nullptr && !(more->is_bool() && more->as_bool());
}

size_t num_members(const Json* object) {
  return object == nullptr ? 0 : object->as_object().size();
}

/// A part that is closed is closed to the names of the others too; one schema cannot say that.
Status check_closed_to(const Node& part, const Node& other, Budget& budget) {
  SWITCHYARD_ASSIGN(const Json* const own, find_object(part, "properties"));
  SWITCHYARD_ASSIGN(const Json* const names, find_object(other, "properties"));
  if (names == nullptr || names == own) return {};
  if (!budget.spend(static_cast<int64_t>((num_members(own) + 1) * num_members(names))))
    return Budget::too_much_work();
  for (const auto& [name, schema] : names->as_object())
    if (own == nullptr || own->find(name) == nullptr)
      return bad_keyword(part, "additionalProperties",
                         fmt::format("does not fit \"{}\" of another part of allOf", name));
  return {};
}

/// The first items of one part would escape the "items" of another.
Status check_items(const Node& part, const Node& other) {
  if (!part.has("prefixItems")) return {};
  const Json* items = other.find("items");
  const Json* first = other.find("prefixItems");
  const bool fits = first != nullptr && same(*first, *part.find("prefixItems"));
  if (items == nullptr || fits) return {};
  return bad_keyword(part, "prefixItems", "does not fit \"items\" of another part of allOf");
}

Status check_pairs(const std::vector<Node>& parts, Budget& budget) {
  for (const Node& part : parts) {
    for (const Node& other : parts) {
      if (part.schema == other.schema) continue;
      if (is_closed(part)) SWITCHYARD_TRY(check_closed_to(part, other, budget));
      SWITCHYARD_TRY(check_items(part, other));
    }
  }
  return {};
}

class Merger {
 public:
  explicit Merger(const Node& whole) : whole_(whole) {}

  Status add(const Node& part) {
    for (const auto& [keyword, value] : part.schema->as_object()) {
      if (is_annotation(keyword) || keyword == "allOf" || keyword == left_out) continue;
      if (Json* before = find(result_, keyword)) {
        SWITCHYARD_ASSIGN(*before, combined(keyword, *before, value));
      } else {
        result_.emplace_back(keyword, value);
      }
    }
    return {};
  }

  Json take() { return Json(std::move(result_)); }

  std::string_view left_out;  ///< a keyword that is not taken over

 private:
  Result<Json> combined(std::string_view keyword, const Json& a, const Json& b) const {
    if (same(a, b)) return a;
    if (keyword == "properties" && a.is_object() && b.is_object()) return merged_properties(a, b);
    if (keyword == "required" && a.is_array() && b.is_array()) return united(a, b);
    if (keyword == "enum" && a.is_array() && b.is_array()) return common_values(a, b);
    if (keyword == "items" || keyword == "additionalProperties") return narrower(a, b);
    if (keyword == "type") {
      Json::Array types = common_types(a, b);
      if (types.empty())
        return bad_keyword(whole_, "type", "the parts of allOf have none in common");
      return Json(std::move(types));
    }
    if (a.is_number() && b.is_number()) {
      const bool a_larger = a.as_double() > b.as_double();
      if (keyword.starts_with("min") || keyword == "exclusiveMinimum") return a_larger ? a : b;
      if (keyword.starts_with("max") || keyword == "exclusiveMaximum") return a_larger ? b : a;
    }
    return bad_keyword(whole_, keyword,
                       "differs between schemas that hold together (allOf, or beside anyOf), and "
                       "cannot be merged");
  }

  static Json narrower(const Json& a, const Json& b) {
    if (a.is_bool()) return a.as_bool() ? b : a;
    if (b.is_bool()) return b.as_bool() ? a : b;
    return both(a, b);
  }

  const Node& whole_;
  Json::Object result_;
};

Result<Json> merge_parts(const Node& node, Parts& parts, std::string_view left_out,
                         Budget& budget) {
  SWITCHYARD_TRY(parts.flatten());
  SWITCHYARD_TRY(check_pairs(parts.list(), budget));
  Merger merger(node);
  for (size_t i = 0; i < parts.list().size(); ++i) {
    const Node& part = parts.list()[i];
    if (!budget.spend(1024 + 8 * std::ssize(text_of(*part.schema)))) return Budget::too_much_work();
    merger.left_out = i == 0 ? left_out : "";
    SWITCHYARD_TRY(merger.add(part));
  }
  return merger.take();
}

}  // namespace

Result<Json> merge(const Node& node, Budget& budget) {
  Parts parts;
  SWITCHYARD_TRY(parts.add(node));
  return merge_parts(node, parts, "", budget);
}

Result<Json> merge_branch(const Node& node, std::string_view keyword, const Node& branch,
                          Budget& budget) {
  Parts parts;
  SWITCHYARD_TRY(parts.add(node));
  SWITCHYARD_TRY(parts.add(branch));
  return merge_parts(node, parts, keyword, budget);
}

}  // namespace switchyard::grammar
