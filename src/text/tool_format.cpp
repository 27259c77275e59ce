// SPDX-License-Identifier: Apache-2.0
#include "text/tool_format.h"

#include <algorithm>

#include "base/json.h"

namespace switchyard::text {
namespace {

/// A special token of DeepSeek's: fullwidth bars around, low blocks for spaces.
std::string deepseek(std::string_view words) {
  std::string token = "<\xEF\xBD\x9C";
  for (const char c : words) token += c == ' ' ? "\xE2\x96\x81" : std::string(1, c);
  return token + "\xEF\xBD\x9C>";
}

std::vector<ToolFormat> make_formats() {
  const std::string begin = deepseek("tool calls begin"), call = deepseek("tool call begin"),
                    separator = deepseek("tool sep"), call_end = deepseek("tool call end"),
                    end = deepseek("tool calls end");
  return {
      {"hermes", "<tool_call>", "", "<tool_call>\n", "", "\n</tool_call>", "\n", ""},
      {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS] [", "", "", "", ", ", "]", 9},
      {"granite", "<|tool_call|>", "<|tool_call|>[", "", "", "", ", ", "]"},
      {"deepseek_v3", begin, begin, call + "function" + separator, "\n```json\n",
       "\n```" + call_end, "\n", end},
      {"deepseek_v31", begin, begin, call, separator, call_end, "", end},
  };
}

void skip(std::string_view& text, std::string_view characters) {
  text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string quoted(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out;
}

}  // namespace

std::span<const ToolFormat> tool_formats() {
  static const std::vector<ToolFormat> formats = make_formats();
  return formats;
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFormat& format : tool_formats())
    names += (names.empty() ? "" : ", ") + format.name;
  return names;
}

bool has_call(const ToolFormat& format, std::string_view text, std::string_view name) {
  const size_t at = text.find(format.marker);
  if (at == std::string_view::npos) return false;
  if (!format.behind_name.empty())
    return text.find(format.call_begin + std::string(name) + format.behind_name, at) !=
           std::string_view::npos;
  text.remove_prefix(at + format.marker.size());
  skip(text, " \n[");
  if (!take(text, "{")) return false;
  skip(text, " ");
  if (!take(text, "\"name\"")) return false;
  skip(text, " :");
  if (!take(text, quoted(name))) return false;
  std::string_view end = format.call_end;
  skip(end, "\n");
  return text.find(end) != std::string_view::npos;
}

jinja::Text write_calls(const ToolFormat& format, std::span<const ChatToolCall> calls) {
  jinja::Text text(format.begin, true);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) text.append(format.between, true);
    text.append(format.call_begin, true);
    const bool bare = !format.behind_name.empty();
    if (!bare) text.append("{\"name\": ", true);
    text.append(bare ? calls[i].name : quoted(calls[i].name), false);
    text.append(bare ? format.behind_name : std::string(", \"arguments\": "), true);
    text.append(calls[i].arguments, false);
    if (!bare) text.append("}", true);
    text.append(format.call_end, true);
  }
  text.append(format.end, true);
  return text;
}

}  // namespace switchyard::text
