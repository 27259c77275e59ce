// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_value.h"

#include <algorithm>
#include <string>
#include <utility>

namespace switchyard::grammar {
namespace {

constexpr int kMostDepth = 4;
const char* const kNames[] = {"a", "b", "ab", "", "\n", "\"", "\u00e9", "c"};
const char* const kWords[] = {"", "a", "b\"\\", "\u00e9\u4f60", "ab c", "\t", "2026", "aab"};
const char* const kPatterns[] = {"^a*b?$", "^[ab]{1,3}$", "a", "^(?:ab|2)", "^\\d+$|^$"};

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
bool rarely(Random& random) { return below(random, 4) == 0; }

Json draw_scalar(Random& random) {
  switch (below(random, 5)) {
    case 0:
      return Json();
    case 1:
      return Json(below(random, 2) == 0);
    case 2:
      return Json(below(random, 30) - 10);
    case 3:
      return Json(below(random, 8) * 0.25);
    default:
      return Json(kWords[below(random, 8)]);
  }
}

Json draw_any(Random& random, int depth) {
  if (depth > 2 || below(random, 3) > 0) return draw_scalar(random);
  if (below(random, 2) == 0) {
    Json::Array items;
    for (int n = below(random, 3); n > 0; --n) items.push_back(draw_any(random, depth + 1));
    return Json(std::move(items));
  }
  Json::Object members;
  for (const char* name : kNames)
    if (rarely(random)) members.emplace_back(name, draw_any(random, depth + 1));
  return Json(std::move(members));
}

class SchemaMaker {
 public:
  explicit SchemaMaker(Random& random) : random_(random) {}

  Json any(int depth) {
    switch (below(random_, depth > 2 ? 7 : 13)) {
      case 0:
        return text();
      case 1:
        return integer();
      case 2:
        return typed("number");
      case 3:
        return typed("boolean");
      case 4:
        return values();
      case 5:
        return Json(Json::Object{{"type", Json(Json::Array{Json("null"), Json("integer")})}});
      case 6:
        return rarely(random_) ? Json(true) : text();
      case 7:
        return Json(Json::Object{{"$ref", Json(below(random_, 2) ? "#/$defs/a" : "#/$defs/b")}});
      case 8:
        return some(below(random_, 2) ? "anyOf" : "oneOf", depth);
      case 9:
        return all(depth);
      case 10:
        return array(depth);
      default:
        return object(depth);
    }
  }

  Json object(int depth) {
    Json::Object schema{{"type", Json("object")}};
    Json::Object properties;
    Json::Array required;
    for (const char* name : kNames) {
      if (!rarely(random_)) continue;
      properties.emplace_back(name, any(depth + 1));
      if (below(random_, 2)) required.emplace_back(name);
    }
    if (!properties.empty()) schema.emplace_back("properties", Json(std::move(properties)));
    if (!required.empty()) schema.emplace_back("required", Json(std::move(required)));
    if (rarely(random_))
      schema.emplace_back("additionalProperties", any(depth + 1));
    else if (rarely(random_))
      schema.emplace_back("additionalProperties", Json(false));
    return Json(std::move(schema));
  }

 private:
  static Json typed(const char* type) { return Json(Json::Object{{"type", Json(type)}}); }

  Json text() {
    Json::Object schema{{"type", Json("string")}};
    const int kind = below(random_, 4);
    const int least = below(random_, 3);
    if (kind == 0) schema.emplace_back("pattern", Json(kPatterns[below(random_, 4)]));
    if (kind == 1) schema.emplace_back("minLength", Json(least));
    if (kind == 1 || kind == 2) schema.emplace_back("maxLength", Json(least + below(random_, 3)));
    return Json(std::move(schema));
  }

  Json integer() {
    Json::Object schema{{"type", Json("integer")}};
    const int low = below(random_, 150) - 100;
    if (below(random_, 2)) schema.emplace_back("minimum", Json(low));
    if (below(random_, 2)) schema.emplace_back("maximum", Json(low + below(random_, 150)));
    return Json(std::move(schema));
  }

  Json values() {
    if (below(random_, 2)) return Json(Json::Object{{"const", draw_any(random_, 1)}});
    Json::Array list;
    for (int n = below(random_, 4); n >= 0; --n) list.push_back(draw_any(random_, 1));
    return Json(Json::Object{{"enum", Json(std::move(list))}});
  }

  Json some(const char* keyword, int depth) {
    Json::Array branches;
    for (int n = 1 + below(random_, 3); n > 0; --n) branches.push_back(any(depth + 1));
    return Json(Json::Object{{keyword, Json(std::move(branches))}});
  }

  Json all(int depth) {
    return Json(Json::Object{{"allOf", Json(Json::Array{object(depth + 1), object(depth + 1)})}});
  }

  Json array(int depth) {
    Json::Object schema{{"type", Json("array")}};
    if (rarely(random_)) {
      Json::Array first;
      for (int n = below(random_, 3); n > 0; --n) first.push_back(any(depth + 1));
      schema.emplace_back("prefixItems", Json(std::move(first)));
    }
    if (below(random_, 4)) schema.emplace_back("items", any(depth + 1));
    const int least = below(random_, 3);
    if (rarely(random_)) schema.emplace_back("minItems", Json(least));
    if (rarely(random_)) schema.emplace_back("maxItems", Json(least + below(random_, 3)));
    return Json(std::move(schema));
  }

  Random& random_;
};

const Json& pick(const Json& list, Random& random) {
  return list
      .as_array()[static_cast<size_t>(below(random, static_cast<int>(list.as_array().size())))];
}

Json draw_array(const Json& schema, const Json& document, Random& random, int depth) {
  const Json *prefix = schema.find("prefixItems"), *items = schema.find("items");
  const Json *least = schema.find("minItems"), *most = schema.find("maxItems");
  int count = depth > kMostDepth ? 0 : below(random, 4);
  if (least) count = std::max(count, static_cast<int>(least->as_int()));
  if (most) count = std::min(count, static_cast<int>(most->as_int()));
  Json::Array values;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const Json* rule = prefix && at < prefix->as_array().size() ? &prefix->as_array()[at] : items;
    values.push_back(rule ? draw_value(*rule, document, random, depth + 1) : draw_any(random, 2));
  }
  return Json(std::move(values));
}

bool is_required(const Json& schema, const std::string& name) {
  const Json* required = schema.find("required");
  return required && std::any_of(required->as_array().begin(), required->as_array().end(),
                                 [&](const Json& one) { return one.as_string() == name; });
}

Json draw_object(const Json& schema, const Json& document, Random& random, int depth) {
  Json::Object members;
  const Json* properties = schema.find("properties");
  if (properties != nullptr) {
    for (const auto& [name, rule] : properties->as_object())
      if (is_required(schema, name) || (depth <= kMostDepth && below(random, 2)))
        members.emplace_back(name, draw_value(rule, document, random, depth + 1));
  }
  const Json* others = schema.find("additionalProperties");
  const bool open = others ? !others->is_bool() || others->as_bool() : properties == nullptr;
  for (const char* name : kNames) {
    if (!open || depth > kMostDepth || !rarely(random)) continue;
    if (properties != nullptr && properties->find(name) != nullptr) continue;
    members.emplace_back(
        name, others ? draw_value(*others, document, random, depth + 1) : draw_any(random, 2));
  }
  return Json(std::move(members));
}

}  // namespace

Json draw_schema(Random& random) {
  SchemaMaker maker(random);
  Json schema = below(random, 3) ? maker.object(0) : maker.any(0);
  if (!schema.is_object()) return schema;
  Json::Object members = schema.as_object();
  members.emplace_back("$defs", Json(Json::Object{{"a", maker.any(1)}, {"b", maker.object(1)}}));
  return Json(std::move(members));
}

Json draw_value(const Json& schema, const Json& document, Random& random, int depth) {
  if (schema.is_bool() || depth > 3 * kMostDepth) return draw_any(random, 1);
  if (const Json* ref = schema.find("$ref"))
    return draw_value(*document.find("$defs")->find(ref->as_string().substr(8)), document, random,
                      depth + 1);
  for (const char* keyword : {"anyOf", "oneOf", "allOf"})
    if (const Json* list = schema.find(keyword))
      return draw_value(pick(*list, random), document, random, depth + 1);
  if (const Json* constant = schema.find("const")) return *constant;
  if (const Json* list = schema.find("enum")) return pick(*list, random);
  const Json* type = schema.find("type");
  if (type == nullptr) return draw_any(random, 1);
  const std::string name = type->is_array() ? pick(*type, random).as_string() : type->as_string();
  if (name == "object") return draw_object(schema, document, random, depth);
  if (name == "array") return draw_array(schema, document, random, depth);
  if (name == "string") return Json(kWords[below(random, 8)]);
  if (name == "integer") return Json(below(random, 240) - 110);
  if (name == "number") return Json(below(random, 80) * 0.25 - 5);
  if (name == "boolean") return Json(below(random, 2) == 0);
  return Json();
}

Json mutated(const Json& value, Random& random) {
  if (value.is_array() && !value.as_array().empty() && below(random, 4)) {
    Json::Array items = value.as_array();
    const auto at = static_cast<size_t>(below(random, static_cast<int>(items.size())));
    if (rarely(random))
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
    else
      items[at] = mutated(items[at], random);
    return Json(std::move(items));
  }
  if (value.is_object() && !value.as_object().empty() && below(random, 4)) {
    Json::Object members = value.as_object();
    const auto at = static_cast<size_t>(below(random, static_cast<int>(members.size())));
    if (rarely(random))
      members.erase(members.begin() + static_cast<std::ptrdiff_t>(at));
    else
      members[at].second = mutated(members[at].second, random);
    return Json(std::move(members));
  }
  if (value.is_integer() && below(random, 2)) return Json(value.as_int() + below(random, 21) - 10);
  return draw_any(random, 1);
}

}  // namespace switchyard::grammar
