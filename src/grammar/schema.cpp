// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema.h"

#include <algorithm>

namespace switchyard::grammar {
namespace {

constexpr std::string_view kAnnotations[] = {"$comment",    "$defs",      "$schema",     "default",
                                             "definitions", "deprecated", "description", "examples",
                                             "readOnly",    "title",      "writeOnly"};

constexpr std::string_view kKeywords[] = {"$ref",
                                          "additionalProperties",
                                          "allOf",
                                          "anyOf",
                                          "const",
                                          "enum",
                                          "exclusiveMaximum",
                                          "exclusiveMinimum",
                                          "format",
                                          "items",
                                          "maxItems",
                                          "maxLength",
                                          "maximum",
                                          "minItems",
                                          "minLength",
                                          "minimum",
                                          "oneOf",
                                          "pattern",
                                          "prefixItems",
                                          "properties",
                                          "required",
                                          "type"};

template <size_t N>
bool is_one_of(std::string_view word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

/// Keywords whose one value changes nothing.
bool is_idle(const Node& node, std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems" || keyword == "nullable") return value.is_bool() && !value.as_bool();
  return keyword == "$id" && node.schema == node.document;
}

/// A token of a JSON pointer, unescaped.
std::string unescaped(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

const Json* step_into(const Json& json, const std::string& token) {
  if (json.is_object()) return json.find(token);
  if (!json.is_array() || token.empty() || token.size() > 9) return nullptr;
  if (token.find_first_not_of("0123456789") != std::string::npos) return nullptr;
  const auto index = static_cast<size_t>(std::stoul(token));
  return index < json.as_array().size() ? &json.as_array()[index] : nullptr;
}

}  // namespace

Node Node::child(const Json& child_schema, std::string_view name) const {
  Node node{&child_schema, document, at + '/'};
  for (const char byte : name) {
    if (byte == '~' || byte == '/') {
      node.at += byte == '~' ? "~0" : "~1";
    } else {
      node.at += byte;
    }
  }
  constexpr size_t kMostPointerBytes = 512;
  if (node.at.size() > kMostPointerBytes)
    node.at = "..." + node.at.substr(node.at.size() - kMostPointerBytes);
  return node;
}

Error bad_keyword(const Node& node, std::string_view keyword, std::string_view what) {
  return fail(Code::bad_request, "{}/{}: {}", node.at, keyword, what);
}

bool is_annotation(std::string_view keyword) { return is_one_of(keyword, kAnnotations); }

Status check_keywords(const Node& node) {
  if (!node.schema->is_object())
    return fail(Code::bad_request, "{}: found {}, expected a schema (an object, true or false)",
                node.at, node.schema->kind_name());
  for (const auto& [keyword, value] : node.schema->as_object()) {
    if (is_annotation(keyword) || is_one_of(keyword, kKeywords) || is_idle(node, keyword, value))
      continue;
    return bad_keyword(node, keyword,
                       "this keyword is not supported (docs/structured_output.md lists those that "
                       "are)");
  }
  return {};
}

bool says_more_than(const Node& node, std::initializer_list<std::string_view> keywords) {
  const auto& members = node.schema->as_object();
  return std::any_of(members.begin(), members.end(), [&](const Json::Member& member) {
    return !is_annotation(member.first) && !is_idle(node, member.first, member.second) &&
           std::find(keywords.begin(), keywords.end(), member.first) == keywords.end();
  });
}

Result<const Json*> find_object(const Node& node, std::string_view keyword) {
  const Json* value = node.find(keyword);
  if (value != nullptr && !value->is_object())
    return bad_keyword(node, keyword,
                       fmt::format("found {}, expected an object", value->kind_name()));
  return value;
}

Result<const Json*> find_array(const Node& node, std::string_view keyword) {
  const Json* value = node.find(keyword);
  if (value == nullptr) return value;
  if (!value->is_array())
    return bad_keyword(node, keyword, fmt::format("found {}, expected a list", value->kind_name()));
  return value;
}

Result<int64_t> find_count(const Node& node, std::string_view keyword, int64_t otherwise) {
  const Json* value = node.find(keyword);
  if (value == nullptr) return otherwise;
  if (!value->is_integer() || value->as_int() < 0)
    return bad_keyword(
        node, keyword,
        fmt::format("found {}, expected a whole number of at least 0", json_text(*value)));
  return value->as_int();
}

Result<Node> follow(const Node& node) {
  const Json* ref = node.find("$ref");
  if (!ref->is_string()) return bad_keyword(node, "$ref", "expected a string");
  const std::string& pointer = ref->as_string();
  if (pointer != "#" && !pointer.starts_with("#/"))
    return bad_keyword(
        node, "$ref",
        fmt::format("\"{}\" is not supported: expected \"#\" or \"#/...\", a place in "
                    "this schema",
                    pointer));
  const Json* at = node.document;
  std::string_view rest = std::string_view(pointer).substr(1);
  while (at != nullptr && !rest.empty()) {
    const size_t end = std::min(rest.find('/', 1), rest.size());
    at = step_into(*at, unescaped(rest.substr(1, end - 1)));
    rest.remove_prefix(end);
  }
  if (at == nullptr)
    return bad_keyword(node, "$ref", fmt::format("\"{}\" leads to nothing", pointer));
  return Node{at, node.document, pointer};
}

bool same(const Json& a, const Json& b) {
  std::string of_a, of_b;
  JsonWriter(of_a).value(a);
  JsonWriter(of_b).value(b);
  return of_a == of_b;
}

}  // namespace switchyard::grammar
