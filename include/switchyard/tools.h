// SPDX-License-Identifier: Apache-2.0
// Tools: functions that a model may call, and how it writes that it does.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace switchyard {

/// A function that the model may call.
struct ToolSchema {
  std::string name;
  std::string parameters;  ///< JSON Schema of its arguments; empty: any object
};

/// A call of one.
struct ToolCall {
  std::string id, name;
  std::string arguments;  ///< a JSON object
};

/// How a family of models writes calls, as texts around names and arguments:
///
///   begin  call_begin CALL call_end  [between  call_begin CALL call_end]...  end
///
/// where CALL is {"name": NAME, "arguments": ARGUMENTS}, or NAME behind_name ARGUMENTS when behind_name is not empty.
struct ToolFormat {
  std::string name = "hermes";
  std::string marker =
      "<tool_call>";  ///< no other text holds it; begin + call_begin begins with it
  std::string begin = {}, call_begin = "<tool_call>\n";
  std::string behind_name = {};
  std::string call_end = "\n</tool_call>", between = "\n", end = {};
  int id_characters = 0;  ///< letters and digits that the chat template wants in an id; 0: any
  /// Special tokens of these texts: they have to leave their text, whatever other special tokens do.
  std::vector<int32_t> special_tokens = {};
};

}  // namespace switchyard
