// SPDX-License-Identifier: Apache-2.0
#include "serve/prepare.h"

#include <algorithm>

#include "serve/arrival.h"

namespace switchyard::serve {
namespace {

using Choice = CallTools::Choice;
using Kind = OutputConstraint::Kind;
using Instead = OutputConstraint::Instead;

Instead instead_of(Kind answer) {
  if (answer == Kind::json_schema) return Instead::json_schema;
  return answer == Kind::json_object ? Instead::json_object : Instead::text;
}

/// A call may come: a grammar is needed where something is promised of it, or of an answer instead of it.
bool needs_grammar(const CallTools& tools, const OutputConstraint& answer) {
  return tools.choice != Choice::automatic || !tools.parallel || answer.kind != Kind::none ||
         std::any_of(tools.tools.begin(), tools.tools.end(),
                     [](const CallTools::Tool& tool) { return tool.strict; });
}

/// Every schema is kept where a call is demanded, else those of strict tools; arguments are an object in any case.
void constrain(const CallTools& tools, const ToolFormat& format, OutputConstraint& constraint) {
  const bool demanded = tools.choice != Choice::automatic;
  if (!demanded) constraint.instead = instead_of(constraint.kind);
  constraint.kind = Kind::tool_calls;
  constraint.format = format;
  constraint.several_calls = tools.parallel && tools.choice != Choice::named;
  for (const CallTools::Tool& tool : tools.tools) {
    if (tools.choice == Choice::named && tool.schema.name != tools.named) continue;
    ToolSchema& schema = constraint.tools.emplace_back(tool.schema);
    if (!demanded && !tool.strict) schema.parameters.clear();
  }
}

std::optional<ApiError> prepare_tools(const Engine& engine, Call& call,
                                      std::optional<ToolFormat>& format) {
  const auto known = engine.tool_format();
  if (!known.ok())
    return refuse_field("tools", "unsupported_parameter",
                        "tools are not supported with this model: {}", known.error().message);
  format = *known;
  Request& request = call.prompts.front();  // a chat has one
  const bool demanded = call.tools.choice != Choice::automatic;
  if (demanded && request.constraint.kind != Kind::none)
    return refuse_field("response_format", "invalid_value",
                        "response_format asks for JSON, but tool_choice demands a call");
  request.sampling.shown_tokens = format->special_tokens;
  if (needs_grammar(call.tools, request.constraint))
    constrain(call.tools, *format, request.constraint);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> prepare_call(const Engine& engine, Call& call,
                                     std::optional<ToolFormat>& format) {
  if (!call.reasoning_effort.empty() && !engine.template_reads("reasoning_effort"))
    return refuse_field(
        "reasoning_effort", "unsupported_parameter",
        "reasoning_effort is \"{}\", but this model's chat template does not read it; "
        "leave it out",
        call.reasoning_effort);
  if (!call.tools.is_on()) return std::nullopt;
  return prepare_tools(engine, call, format);
}

std::optional<ApiError> check_reports(const Call& call) {
  if (call.stream) return std::nullopt;
  size_t entries = 0;
  for (const Request& request : call.prompts)
    if (const auto& top = request.sampling.logprobs)
      entries += static_cast<size_t>(call.n) * static_cast<size_t>(request.sampling.max_tokens) *
                 static_cast<size_t>(*top + 1);
  if (entries <= kMaxReported) return std::nullopt;
  return refuse_field(call.endpoint == Endpoint::chat ? "top_logprobs" : "logprobs",
                      "invalid_value",
                      "the answer could have {} log probabilities, expected at most {}: ask for a "
                      "stream, or for fewer tokens (max_tokens), choices or likely tokens",
                      entries, kMaxReported);
}

ApiError template_error(const Error& error, Endpoint endpoint) {
  ApiError refusal = api_error(error);
  const bool chat = endpoint == Endpoint::chat;
  refusal.param = chat ? "messages" : "prompt";
  if (!chat || refusal.status != 400) return refusal;
  // The template leaves this out, and says so of its place.
  const bool is_left_out =
      error.code == Code::unsupported && error.message.starts_with("messages[");
  if (is_left_out) refusal.param = error.message.substr(0, error.message.find(':'));
  if (error.message.starts_with("tools: ")) refusal.param = "tools";
  refusal.code = is_left_out ? "unsupported_parameter" : "template_error";
  return refusal;
}

std::string new_call_id(int characters) {
  const std::string digits = new_id();
  if (characters > 0) return digits.substr(0, static_cast<size_t>(characters));
  return "call_" + digits.substr(0, 24);
}

}  // namespace switchyard::serve
