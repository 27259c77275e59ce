// SPDX-License-Identifier: Apache-2.0
#include "grammar/compiler.h"

#include <algorithm>
#include <array>

namespace switchyard::grammar {
namespace {

constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

/// A keyword says which type it is about.
constexpr std::pair<std::string_view, std::string_view> kSuggestions[] = {
    {"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"},
    {"items", "array"},       {"prefixItems", "array"},       {"minItems", "array"},
    {"maxItems", "array"},    {"minLength", "string"},        {"maxLength", "string"},
    {"pattern", "string"},    {"format", "string"},           {"minimum", "number"},
    {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},
};

Status add_type(const Node& node, const Json& type, std::vector<std::string>& types) {
  if (!type.is_string() ||
      std::find(std::begin(kTypes), std::end(kTypes), type.as_string()) == std::end(kTypes))
    return bad_keyword(node, "type",
                       fmt::format("found {}, expected object, array, string, number, integer, "
                                   "boolean or null",
                                   json_text(type)));
  if (std::find(types.begin(), types.end(), type.as_string()) == types.end())
    types.push_back(type.as_string());
  return {};
}

}  // namespace

Result<std::vector<std::string>> types_of(const Node& node) {
  std::vector<std::string> types;
  if (const Json* type = node.find("type")) {
    if (!type->is_array()) {
      SWITCHYARD_TRY(add_type(node, *type, types));
      return types;
    }
    for (const Json& one : type->as_array()) SWITCHYARD_TRY(add_type(node, one, types));
    if (types.empty()) return bad_keyword(node, "type", "an empty list");
    return types;
  }
  for (const auto& [keyword, type] : kSuggestions)
    if (node.has(keyword) && std::find(types.begin(), types.end(), type) == types.end())
      types.emplace_back(type);
  return types;
}

bool is_of_type(const Json& value, std::string_view type) {
  switch (value.kind()) {
    case Json::Kind::null:
      return type == "null";
    case Json::Kind::boolean:
      return type == "boolean";
    case Json::Kind::integer:
    case Json::Kind::unsigned_integer:
      return type == "integer" || type == "number";
    case Json::Kind::real:
      return type == "number";
    case Json::Kind::string:
      return type == "string";
    case Json::Kind::array:
      return type == "array";
    case Json::Kind::object:
      return type == "object";
  }
  return false;
}

int32_t Compiler::part_of(const Node& node) {
  const auto [at, is_new] = parts_.emplace(node.schema, 0);
  if (is_new) {
    at->second = network_.add_state();
    places_.emplace_back(at->second, node.at);
    waiting_.push_back({node, at->second});
  }
  return at->second;
}

Status Compiler::work() {
  while (!waiting_.empty()) {
    const Waiting next = std::move(waiting_.back());
    waiting_.pop_back();
    SWITCHYARD_TRY(compile(next.node, next.start));
    SWITCHYARD_TRY(network_.check_size());
    if (!budget_.spend(16)) return Budget::too_much_work();
  }
  return {};
}

Result<Network> Compiler::finish(int32_t root) {
  const int32_t circle = network_.find_left_recursion();
  if (circle >= 0) {
    const auto at = std::find_if(places_.begin(), places_.end(),
                                 [&](const auto& place) { return place.first == circle; });
    return fail(Code::bad_request, "{}: refers to itself without anything in between",
                at == places_.end() ? "#" : at->second);
  }
  if (!network_.finish(root))
    return fail(Code::bad_request,
                "no value satisfies the schema, or only one that nests deeper than {} levels",
                kMaxDepth);
  return std::move(network_);
}

int32_t Compiler::end() {
  if (!end_) {
    end_ = network_.add_state();
    network_.state(*end_).ends = true;
  }
  return *end_;
}

int32_t Compiler::any_value() {
  if (any_value_) return *any_value_;
  any_value_ = network_.add_state();
  for (const std::string_view type : {"object", "array", "string", "number", "boolean", "null"}) {
    const Json& schema = keep(Json(Json::Object{{"type", Json(std::string(type))}}));
    const int32_t part =
        type == "object" ? any_object() : part_of({&schema, &schema, "#/(any value)"});
    network_.add_call(*any_value_, part, end());
  }
  return *any_value_;
}

int32_t Compiler::any_object() {
  if (any_object_) return *any_object_;
  const Json& schema = keep(Json(Json::Object{{"type", Json("object")}}));
  any_object_ = part_of({&schema, &schema, "#/(any object)"});
  return *any_object_;
}

Status Compiler::accept(int32_t start, const Nfa& nfa, Fragment whole) {
  SWITCHYARD_ASSIGN(const Dfa dfa, determinize(nfa, whole, budget_));
  for (const int32_t at : network_.insert(dfa, start)) network_.state(at).ends = true;
  return network_.check_size();
}

std::pair<int32_t, int32_t> Compiler::add_mark(int32_t from, char mark) {
  const int32_t behind = network_.add_state(), space = network_.add_state();
  network_.add_edge(from, mark, mark, behind);
  network_.add_edge(behind, ' ', ' ', space);
  return {behind, space};
}

int32_t Compiler::add_text(int32_t from, std::string_view text) {
  for (const char letter : text) {
    const int32_t next = network_.add_state();
    const auto byte = static_cast<uint8_t>(letter);
    network_.add_edge(from, byte, byte, next);
    from = next;
  }
  return from;
}

Status Compiler::compile(const Node& node, int32_t start) {
  if (node.schema->is_bool()) {
    if (node.schema->as_bool()) network_.add_call(start, any_value(), end());
    return {};  // false: nothing goes on from there
  }
  SWITCHYARD_TRY(check_keywords(node));
  if (node.has("allOf")) return compile_all_of(node, start);
  if (node.has("$ref")) {
    if (says_more_than(node, {"$ref"}))
      return bad_keyword(node, "$ref", "beside other keywords is not supported: use allOf");
    SWITCHYARD_ASSIGN(const Node target, follow(node));
    network_.add_call(start, part_of(target), end());
    return {};
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"})
    if (node.has(keyword)) return compile_any_of(node, keyword, start);
  if (node.has("enum") || node.has("const")) return compile_values(*this, node, start);
  return compile_types(node, start);
}

Status Compiler::compile_all_of(const Node& node, int32_t start) {
  SWITCHYARD_ASSIGN(Json merged, merge(node, budget_));
  network_.add_call(start, part_of({&keep(std::move(merged)), node.document, node.at}), end());
  return {};
}

Status Compiler::compile_any_of(const Node& node, std::string_view keyword, int32_t start) {
  SWITCHYARD_ASSIGN(const Json* const list, find_array(node, keyword));
  const Json::Array& branches = list->as_array();
  if (branches.empty()) return bad_keyword(node, keyword, "an empty list");
  const bool alone = !says_more_than(node, {keyword});
  for (size_t i = 0; i < branches.size(); ++i) {
    Node branch = node.child(branches[i], fmt::format("{}", keyword));
    branch.at += fmt::format("/{}", i);
    if (!alone && !(branches[i].is_bool() && !branches[i].as_bool())) {
      SWITCHYARD_ASSIGN(Json merged, merge_branch(node, keyword, branch, budget_));
      branch.schema = &keep(std::move(merged));
    }
    network_.add_call(start, part_of(branch), end());
  }
  return {};
}

Status Compiler::compile_types(const Node& node, int32_t start) {
  SWITCHYARD_ASSIGN(const std::vector<std::string> types, types_of(node));
  if (types.empty()) {
    network_.add_call(start, any_value(), end());
    return {};
  }
  if (types.size() == 1) return compile_type(node, types.front(), start);
  for (const std::string& type : types) {
    const int32_t part = network_.add_state();
    network_.add_call(start, part, end());
    SWITCHYARD_TRY(compile_type(node, type, part));
  }
  return {};
}

Status Compiler::compile_type(const Node& node, std::string_view type, int32_t start) {
  if (type == "object") return compile_object(*this, node, start);
  if (type == "array") return compile_array(*this, node, start);
  if (type == "string") return compile_string(*this, node, start);
  if (type == "integer") return compile_integer(*this, node, start);
  if (type == "number") return compile_number(*this, node, start);
  Nfa nfa;
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  if (type == "null") {
    nfa.add_literal(whole.start, "null", whole.end);
  } else {
    nfa.add_literal(whole.start, "true", whole.end);
    nfa.add_literal(whole.start, "false", whole.end);
  }
  return accept(start, nfa, whole);
}

}  // namespace switchyard::grammar
