// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <utility>

#include "base/utf8.h"
#include "grammar/compiler.h"

namespace switchyard::grammar {
namespace {

Status check_text(std::string_view text, std::string_view name) {
  if (is_utf8(text)) return {};
  return fail(Code::bad_request, "{} is not valid UTF-8", name);
}

}  // namespace

Result<Grammar> Grammar::compile(const Json& schema) {
  Compiler compiler;
  const int32_t root = compiler.part_of({&schema, &schema, "#"});
  SWITCHYARD_TRY(compiler.work());
  SWITCHYARD_ASSIGN(Network network, compiler.finish(root));
  return Grammar(std::move(network));
}

Result<Grammar> Grammar::compile_text(std::string_view schema) {
  if (schema.size() > kMaxSchemaBytes)
    return fail(Code::bad_request, "the schema has {} bytes, expected at most {}", schema.size(),
                kMaxSchemaBytes);
  const Result<Json> json = parse_json(schema, "schema");
  if (!json.ok()) return fail(Code::bad_request, "{}", json.error().message);
  return compile(*json);
}

Result<Grammar> Grammar::any_object() {
  Compiler compiler;
  const int32_t root = compiler.any_object();
  SWITCHYARD_TRY(compiler.work());
  SWITCHYARD_ASSIGN(Network network, compiler.finish(root));
  return Grammar(std::move(network));
}

Result<Grammar> Grammar::one_of(std::span<const std::string> choices) {
  Compiler compiler;
  Nfa nfa;
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  for (size_t i = 0; i < choices.size(); ++i) {
    SWITCHYARD_TRY(check_text(choices[i], fmt::format("choice {}", i)));
    if (choices[i].empty()) return fail(Code::bad_request, "choice {} is empty", i);
    nfa.add_literal(whole.start, choices[i], whole.end);
    if (nfa.too_large()) return Budget::too_many_states();
  }
  if (choices.empty()) return fail(Code::bad_request, "no choices: expected at least one");
  const int32_t root = compiler.network().add_state();
  SWITCHYARD_TRY(compiler.accept(root, nfa, whole));
  SWITCHYARD_ASSIGN(Network network, compiler.finish(root));
  return Grammar(std::move(network));
}

}  // namespace switchyard::grammar
