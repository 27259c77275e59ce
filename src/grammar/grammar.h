// SPDX-License-Identifier: Apache-2.0
// Grammar: what an output may be, compiled once per request or once for many. Immutable; copies share it.
//
// What each keyword of a schema means here, what is refused, and every limit: docs/structured_output.md. Compiling either
// gives a grammar or an error that names the place; there is no third way in which output would be free.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/network.h"

namespace switchyard::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{64} << 10;

/// A function that a model may call.
struct Tool {
  std::string name;
  Json parameters;  ///< the schema of its arguments; null: any object
};

/// How a family writes calls: begin, then call_begin CALL call_end with `between` in between, then end. CALL is
/// {"name": NAME, "arguments": ARGUMENTS}, or NAME behind_name ARGUMENTS where behind_name says something.
struct ToolCallFormat {
  std::string begin = {}, call_begin = "<tool_call>\n", behind_name = {};
  std::string call_end = "\n</tool_call>", between = "\n", end = {};
  std::string name_key = "name", arguments_key = "arguments";
  bool several = false;
};

/// What an output may be besides calls.
struct InsteadOfCalls {
  std::string marker =
      {};  ///< not empty: any text that does not hold it, also before calls; begins a call
  const Json* schema = nullptr;  ///< JSON of that
  bool any_object = false;       ///< any JSON object
};

class Grammar {
 public:
  /// Errors: Code::bad_request, with the JSON pointer and the limit or the reason.
  static Result<Grammar> compile(const Json& schema);
  /// The same of a text of at most kMaxSchemaBytes.
  static Result<Grammar> compile_text(std::string_view schema);
  /// Any JSON object.
  static Result<Grammar> any_object();
  /// One of these texts, as they are.
  static Result<Grammar> one_of(std::span<const std::string> choices);
  /// Calls of these tools, at least one; or what may come instead.
  static Result<Grammar> tool_calls(std::span<const Tool> tools, const ToolCallFormat& format,
                                    const InsteadOfCalls& instead = {});

  const Network& network() const noexcept { return *network_; }

 private:
  explicit Grammar(Network network)
      : network_(std::make_shared<const Network>(std::move(network))) {}

  std::shared_ptr<const Network> network_;
};

}  // namespace switchyard::grammar
