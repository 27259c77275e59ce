// SPDX-License-Identifier: Apache-2.0
// What a chat template does with tools. Nothing says so but the template itself, so it is tried: with a tool, with a call of
// it and with an answer; from the texts that come out one sees what it writes, and how.
#include <algorithm>

#include "text/chat.h"

namespace switchyard::text {
namespace {

constexpr std::string_view kProbeName = "probe_tool", kProbeValue = "probe_value",
                           kProbeAnswer = "probe_answer";
constexpr std::string_view kProbeTools =
    R"([{"type": "function", "function": {"name": "probe_tool", "description": "A probe.",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": ["probe_key"]}}}])";
// Mixtral's template wants nine letters or digits as an id.
constexpr const char* kProbeId = "probe0001";
constexpr std::string_view kChatMl = "<|im_start|>";

bool holds(const Result<std::string>& text, std::string_view word) {
  return text.ok() && text->find(word) != std::string::npos;
}

std::vector<ChatMessage> probe_conversation() {
  return {{"user", "Hi"},
          {.role = "assistant",
           .content = "",
           .tool_calls = {{kProbeId, std::string(kProbeName), R"({"probe_key": "probe_value"})"}}},
          {.role = "tool",
           .content = std::string(kProbeAnswer),
           .tool_call_id = kProbeId,
           .name = std::string(kProbeName)}};
}

const ToolFormat* format_of_call(std::string_view text) {
  for (const ToolFormat& format : tool_formats())
    if (has_call(format, text, kProbeName)) return &format;
  return nullptr;
}

const ToolFormat* format_of_marker(std::string_view text) {
  for (const ToolFormat& format : tool_formats())
    if (text.find(format.marker) != std::string_view::npos) return &format;
  return nullptr;
}

}  // namespace

Result<ToolFormat> ChatTemplate::tool_format() const {
  if (with_tools_) return with_tools_->tool_format();
  if (style_) return style_->format;
  return fail(Code::unsupported,
              "{} writes no tool calls, or none in a format that is supported: expected one of {}",
              source_, tool_format_names());
}

/// What would be left out of the prompt is refused: the model would answer another conversation.
Status ChatTemplate::check_tool_messages(std::span<const ChatMessage> messages) const {
  const bool calls = style_ || shows_calls_;
  const bool answers = style_ ? !style_->tool_role.empty() : shows_answers_;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!calls && !messages[i].tool_calls.empty())
      return fail(Code::unsupported, "messages[{}].tool_calls: {} does not write calls of tools", i,
                  source_);
    if (!answers && messages[i].role == "tool")
      return fail(Code::unsupported, "messages[{}].role: {} has no place for the answer of a tool",
                  i, source_);
  }
  return {};
}

ChatRender ChatTemplate::probe_options() const {
  ChatRender options;
  if (is_for_tools_) options.tools = *parse_json(kProbeTools, "probe");
  return options;
}

/// Tries the ways in which templates expect a call, until one is written in a known format. True when the template writes
/// calls in any format.
bool ChatTemplate::probe_calls(ToolStyle& style) const {
  const ChatRender options = probe_options();
  bool any = false;
  ChatTemplate trial = *this;
  for (const bool text_arguments : {false, true}) {
    for (const bool null_content : {true, false}) {
      style.text_arguments = text_arguments;
      style.null_content = null_content;
      style.writes_calls = style.lists_tools = true;
      trial.style_ = style;
      const std::vector<ChatMessage> all = probe_conversation();
      auto text = trial.render(all, options);
      // Some have no place for the answer.
      if (!text.ok()) text = trial.render(std::span(all).first(2), options);
      any = any || holds(text, kProbeValue);
      const ToolFormat* const format = text.ok() ? format_of_call(*text) : nullptr;
      if (format == nullptr) continue;
      style.format = *format;
      return true;
    }
  }
  style.writes_calls = style.lists_tools = false;
  return any;
}

std::string ChatTemplate::probe_role() const {
  ChatTemplate trial = *this;
  trial.style_ = style_;
  for (const char* role : {"tool", "tool_response", "ipython"}) {
    trial.style_->tool_role = role;
    if (holds(trial.render(probe_conversation(), probe_options()), kProbeAnswer)) return role;
  }
  return "";
}

void ChatTemplate::probe_tools() {
  ToolStyle style;
  style.tool_role = "tool";
  const bool writes_any = probe_calls(style);
  if (!style.writes_calls) {
    const std::vector<ChatMessage> all = probe_conversation();
    const auto whole = render(all, probe_options());
    shows_calls_ = holds(whole, kProbeValue) ||
                   holds(render(std::span(all).first(2), probe_options()), kProbeValue);
    shows_answers_ = holds(whole, kProbeAnswer);
    if (writes_any) return;  // in a format of its own
    const ToolFormat* format = format_of_marker(text_);
    // The models that speak ChatML and say nothing else were trained, if at all, on this one.
    if (format == nullptr && mentions(kChatMl)) format = &tool_formats().front();
    if (format == nullptr) return;
    style.format = *format;
  }
  style_ = style;
  style_->lists_tools = true;  // so that nothing is added while it is tried
  const ChatMessage hello[] = {{"system", "Be brief."}, {"user", "Hi"}};
  const ChatRender with_tools{.tools = *parse_json(kProbeTools, "probe")};
  style_->lists_tools = holds(render(hello, with_tools), kProbeName) ||
                        holds(render(std::span(hello).subspan(1), with_tools), kProbeName);
  style_->tool_role = probe_role();
}

Result<Value> ChatTemplate::calls_value(std::span<const ChatToolCall> calls) const {
  const auto word = [](std::string_view text) { return Value::string(text, true); };
  std::vector<Value> list;
  for (const ChatToolCall& call : calls) {
    Value arguments = Value::string(call.arguments, false);
    if (!style_ || !style_->text_arguments) {
      const auto json = parse_json(call.arguments, "arguments of " + call.name);
      if (!json.ok()) return fail(Code::bad_request, "{}", json.error().message);
      SWITCHYARD_ASSIGN(arguments, Value::from_json(*json));
    }
    jinja::Dict function, entry;
    SWITCHYARD_TRY(function.set(word("name"), Value::string(call.name, false)));
    SWITCHYARD_TRY(function.set(word("arguments"), std::move(arguments)));
    SWITCHYARD_TRY(entry.set(word("id"), Value::string(call.id, false)));
    SWITCHYARD_TRY(entry.set(word("type"), word("function")));
    SWITCHYARD_TRY(entry.set(word("function"), Value::dict(std::move(function))));
    list.push_back(Value::dict(std::move(entry)));
  }
  return Value::list(std::move(list));
}

std::vector<ChatMessage> ChatTemplate::with_tool_list(std::span<const ChatMessage> messages,
                                                      const Json& tools) const {
  std::string list = "Functions that you can call, one JSON object a line:\n";
  for (const Json& tool : tools.as_array()) {
    JsonWriter(list).value(tool);
    list += "\n";
  }
  const ChatToolCall example[] = {{"", "NAME", "{\"ARGUMENT\": VALUE}"}};
  list += "To call one, write:\n" + std::string(write_calls(style_->format, example).view());
  std::vector<ChatMessage> all(messages.begin(), messages.end());
  if (all.empty() || all.front().role != "system")
    all.insert(all.begin(), ChatMessage{"system", list});
  else
    all.front().content += "\n\n" + list;
  return all;
}

}  // namespace switchyard::text
