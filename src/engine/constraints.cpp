// SPDX-License-Identifier: Apache-2.0
#include "engine/constraints.h"

#include <algorithm>

#include "base/json.h"
#include "text/token_bytes.h"

namespace switchyard::engine {
namespace {

using grammar::Grammar;
using Kind = OutputConstraint::Kind;
using Instead = OutputConstraint::Instead;

Status check_beside(const SamplingParams& params) {
  if (params.ignore_eos)
    return fail(Code::bad_request,
                "ignore_eos is set beside a constraint, whose output must end when it is complete");
  if (params.min_tokens > 0)
    return fail(Code::bad_request,
                "min_tokens is {} beside a constraint, whose output must end when it is complete",
                params.min_tokens);
  return {};
}

Result<std::vector<grammar::Tool>> tools_of(const OutputConstraint& constraint) {
  std::vector<grammar::Tool> tools;
  for (const ToolSchema& tool : constraint.tools) {
    Json parameters;
    if (tool.parameters.size() > grammar::kMaxSchemaBytes)
      return fail(Code::bad_request,
                  "the parameters of tool \"{}\" have {} bytes, expected at most {}", tool.name,
                  tool.parameters.size(), grammar::kMaxSchemaBytes);
    if (!tool.parameters.empty()) {
      auto parsed = parse_json(tool.parameters, "parameters of tool " + tool.name);
      if (!parsed.ok()) return fail(Code::bad_request, "{}", parsed.error().message);
      parameters = *std::move(parsed);
    }
    tools.push_back({tool.name, std::move(parameters)});
  }
  return tools;
}

Result<Json> schema_of(const std::string& text) {
  if (text.size() > grammar::kMaxSchemaBytes)
    return fail(Code::bad_request, "the schema has {} bytes, expected at most {}", text.size(),
                grammar::kMaxSchemaBytes);
  auto parsed = parse_json(text, "schema");
  if (!parsed.ok()) return fail(Code::bad_request, "{}", parsed.error().message);
  return parsed;
}

Result<Grammar> compile_tools(const OutputConstraint& constraint) {
  SWITCHYARD_ASSIGN(const std::vector<grammar::Tool> tools, tools_of(constraint));
  const ToolFormat& given = constraint.format;
  grammar::ToolCallFormat format;
  format.begin = given.begin;
  format.call_begin = given.call_begin;
  format.behind_name = given.behind_name;
  format.call_end = given.call_end;
  format.between = given.between;
  format.end = given.end;
  format.several = constraint.several_calls;
  grammar::InsteadOfCalls instead;
  if (constraint.instead == Instead::text) instead.marker = given.marker;
  instead.any_object = constraint.instead == Instead::json_object;
  Json schema;
  if (constraint.instead == Instead::json_schema) {
    SWITCHYARD_ASSIGN(schema, schema_of(constraint.schema));
    instead.schema = &schema;
  }
  return Grammar::tool_calls(tools, format, instead);
}

Result<Grammar> compile_grammar(const OutputConstraint& constraint) {
  switch (constraint.kind) {
    case Kind::json_object:
      return Grammar::any_object();
    case Kind::json_schema:
      return Grammar::compile_text(constraint.schema);
    case Kind::choices:
      return Grammar::one_of(constraint.choices);
    case Kind::tool_calls:
      return compile_tools(constraint);
    case Kind::none:
      break;
  }
  return fail(Code::bad_request, "constraint.kind is {}, which is none that is known",
              static_cast<int>(constraint.kind));
}

/// All that the grammar depends on, each part with its length in front.
std::string key_of(const OutputConstraint& constraint, const SamplingParams& params) {
  std::string key = fmt::format("{} {} {}", static_cast<int>(constraint.kind),
                                constraint.several_calls, static_cast<int>(constraint.instead));
  const auto add = [&](const std::string& part) {
    key += fmt::format(" {}:{}", part.size(), part);
  };
  add(constraint.schema);
  for (const std::string& choice : constraint.choices) add(choice);
  key += " tools";
  for (const ToolSchema& tool : constraint.tools) {
    add(tool.name);
    add(tool.parameters);
  }
  const ToolFormat& format = constraint.format;
  for (const std::string* text :
       {&format.marker, &format.begin, &format.call_begin, &format.behind_name, &format.call_end,
        &format.between, &format.end})
    add(*text);
  for (const int32_t token : params.shown_tokens) key += fmt::format(" {}", token);
  return key;
}

/// Without these, some grammar could come to a place from which no token goes on.
Status check_vocabulary(const std::vector<std::string>& bytes) {
  std::vector<bool> has(128, false);
  for (const std::string& token : bytes)
    if (token.size() == 1 && static_cast<uint8_t>(token[0]) < 128)
      has[static_cast<uint8_t>(token[0])] = true;
  for (int byte = 0x20; byte < 0x7F; ++byte)
    if (!has[static_cast<size_t>(byte)])
      return fail(Code::unsupported,
                  "the vocabulary has no token for \"{}\" alone: constraints need one for every "
                  "printable ASCII character",
                  static_cast<char>(byte));
  return {};
}

}  // namespace

Constraints::Constraints(const text::Tokenizer& tokenizer, int vocab, std::vector<int32_t> eos_ids)
    : tokenizer_(tokenizer), vocab_(vocab), eos_ids_(std::move(eos_ids)) {}

/// Special tokens have no bytes, unless they are to leave their text.
Result<std::shared_ptr<const grammar::TokenTrie>> Constraints::tokens(
    const std::vector<int32_t>& shown) {
  const auto known = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](const auto& one) { return one.first == shown; });
  if (known != tokens_.end()) return known->second;
  std::vector<std::string> bytes = text::token_bytes(tokenizer_);
  bytes.resize(static_cast<size_t>(vocab_));
  SWITCHYARD_TRY(check_vocabulary(bytes));
  for (const int32_t token : shown)
    if (token >= 0 && token < vocab_)
      bytes[static_cast<size_t>(token)] = tokenizer_.token_text(token);
  auto made = std::make_shared<const grammar::TokenTrie>(std::move(bytes), eos_ids_);
  if (tokens_.size() >= kKeptVocabularies) tokens_.erase(tokens_.begin());
  tokens_.emplace_back(shown, made);
  return made;
}

Result<std::shared_ptr<grammar::Constraint>> Constraints::compile(
    const OutputConstraint& constraint, const SamplingParams& params) {
  if (constraint.kind == Kind::none) return std::shared_ptr<grammar::Constraint>();
  SWITCHYARD_TRY(check_beside(params));
  std::string key = key_of(constraint, params);
  const auto find = [&] {
    return std::find_if(kept_.begin(), kept_.end(),
                        [&](const auto& one) { return one.first == key; });
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = find(); at != kept_.end()) {
      std::rotate(at, at + 1, kept_.end());
      return kept_.back().second;
    }
  }
  SWITCHYARD_ASSIGN(Grammar grammar, compile_grammar(constraint));  // long: others go on meanwhile
  const std::lock_guard lock(mutex_);
  if (const auto at = find(); at != kept_.end()) return at->second;
  SWITCHYARD_ASSIGN(auto vocabulary, tokens(params.shown_tokens));
  auto made = std::make_shared<grammar::Constraint>(std::move(grammar), std::move(vocabulary));
  if (kept_.size() >= kKept) kept_.erase(kept_.begin());
  kept_.emplace_back(std::move(key), made);
  return made;
}

}  // namespace switchyard::engine
