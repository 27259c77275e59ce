// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <utility>

#include "base/utf8.h"
#include "grammar/compiler.h"

namespace switchyard::grammar {
namespace {

constexpr size_t kMaxTools = 256;

Status check_text(std::string_view text, std::string_view name) {
  if (is_utf8(text)) return {};
  return fail(Code::bad_request, "{} is not valid UTF-8", name);
}

Status check_format(const ToolCallFormat& format) {
  for (const std::string* text :
       {&format.begin, &format.end, &format.between, &format.name_key, &format.arguments_key})
    SWITCHYARD_TRY(check_text(*text, "a text of the format of tool calls"));
  if (format.name_key == format.arguments_key)
    return fail(Code::bad_request, "name and arguments of a tool call have one key, \"{}\"",
                format.name_key);
  return {};
}

/// {"name": "f", "arguments": ...}
Status write_call(Compiler& to, const Tool& tool, const ToolCallFormat& format, int32_t start) {
  if (tool.name.empty()) return fail(Code::bad_request, "a tool without a name");
  SWITCHYARD_TRY(check_text(tool.name, "the name of a tool"));
  const std::string at = fmt::format("{}: #", tool.name);
  const Json& name = to.keep(Json(Json::Object{{"const", Json(tool.name)}}));
  const int32_t arguments = tool.parameters.is_null()
                                ? to.any_object()
                                : to.part_of({&tool.parameters, &tool.parameters, at});
  ObjectContents call;
  call.properties.push_back({format.name_key, to.part_of({&name, &name, at}), true});
  call.properties.push_back({format.arguments_key, arguments, true});
  return write_object(to, std::move(call), start);
}

Status write_calls(Compiler& to, std::span<const Tool> tools, const ToolCallFormat& format,
                   int32_t start) {
  Network& net = to.network();
  const int32_t first = to.add_text(start, format.begin), behind = net.add_state();
  for (const Tool& tool : tools) {
    const int32_t call = net.add_state();
    SWITCHYARD_TRY(write_call(to, tool, format, call));
    net.add_call(first, call, behind);
  }
  const int32_t ended = to.add_text(behind, format.end);
  net.state(ended).ends = true;
  if (!format.several) return {};
  // From the last end to the state behind the first begin, so that several calls are a circle.
  const std::string joint = format.between + format.begin;
  if (joint.empty()) return fail(Code::bad_request, "several tool calls need a text between them");
  const int32_t last = to.add_text(ended, std::string_view(joint).substr(0, joint.size() - 1));
  const auto byte = static_cast<uint8_t>(joint.back());
  net.add_edge(last, byte, byte, first);
  return {};
}

Status check_tools(std::span<const Tool> tools) {
  if (tools.empty()) return fail(Code::bad_request, "no tools: expected at least one");
  if (tools.size() > kMaxTools)
    return fail(Code::bad_request, "{} tools, expected at most {}", tools.size(), kMaxTools);
  return {};
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

Result<Grammar> Grammar::tool_calls(std::span<const Tool> tools, const ToolCallFormat& format) {
  SWITCHYARD_TRY(check_tools(tools));
  SWITCHYARD_TRY(check_format(format));
  Compiler compiler;
  const int32_t root = compiler.network().add_state();
  SWITCHYARD_TRY(write_calls(compiler, tools, format, root));
  SWITCHYARD_TRY(compiler.work());
  SWITCHYARD_ASSIGN(Network network, compiler.finish(root));
  return Grammar(std::move(network));
}

}  // namespace switchyard::grammar
