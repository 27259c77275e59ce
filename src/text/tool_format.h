// SPDX-License-Identifier: Apache-2.0
// ToolFormat: how the models of a family write that they call functions, as texts around names and arguments.
//
//   begin  call_begin CALL call_end  [between  call_begin CALL call_end]...  end
//   CALL is {"name": NAME, "arguments": ARGUMENTS}, or NAME behind_name ARGUMENTS where behind_name says something
//
// Sources: the chat templates of Qwen3, Mixtral-8x22B-Instruct-v0.1, DeepSeek-V3 and -V3.1, granite-3.0 on Hugging Face.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_text.h"

namespace switchyard::text {

struct ToolFormat {
  std::string name;         ///< "hermes"
  std::string marker;       ///< what no other text holds: the beginning of begin + call_begin
  std::string begin;        ///< before the first call
  std::string call_begin;   ///< before each
  std::string behind_name;  ///< between a bare name and its arguments; empty: an object has both
  std::string call_end, between, end;
  int id_characters =
      0;  ///< letters and digits that the template wants in the id of a call; 0: any
};

/// A function and its arguments, a JSON object as text.
struct ChatToolCall {
  std::string id, name, arguments;
};

/// All that are known.
std::span<const ToolFormat> tool_formats();
/// Their names, for messages.
std::string tool_format_names();

/// Whether a call of `name` was written so in `text`.
bool has_call(const ToolFormat& format, std::string_view text, std::string_view name);

/// The calls as the format has them; names and arguments are not trusted.
jinja::Text write_calls(const ToolFormat& format, std::span<const ChatToolCall> calls);

}  // namespace switchyard::text
