// SPDX-License-Identifier: Apache-2.0
// Call: one request to a completions endpoint, parsed and checked. Nothing here knows an engine.
//
// Fields fall into four groups (call_fields.cpp has the tables): served; harmless, which may be left out without changing
// an answer; not served, which are refused by name unless they ask for what happens anyway; and unknown, which are
// ignored, or refused in strict mode.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "switchyard/request.h"

#include "base/json.h"
#include "serve/api_error.h"
#include "serve/fields.h"

namespace switchyard::serve {

enum class Endpoint : unsigned char { chat, completions };
enum class UnknownFields : unsigned char { ignored, refused };

inline constexpr int kMaxChoices = 16;     ///< n
inline constexpr size_t kMaxPrompts = 64;  ///< of one call
inline constexpr size_t kMaxMessages = 4096;
inline constexpr int kMaxBodyDepth = 32;
inline constexpr size_t kMaxStops = 16;

inline constexpr size_t kMaxTools = 256;

/// What a chat says of tools.
struct CallTools {
  enum class Choice : unsigned char { none, automatic, required, named };
  struct Tool {
    ToolSchema schema;
    bool strict = false;  ///< what is called keeps the schema, whatever the choice
  };
  std::vector<Tool> tools;
  std::string json;  ///< the array as it came
  Choice choice = Choice::none;
  std::string named;     ///< the one that must be called
  bool parallel = true;  ///< several calls in one answer

  /// The model is shown them.
  bool is_on() const noexcept { return choice != Choice::none; }
};

struct Call {
  Endpoint endpoint = Endpoint::chat;
  std::string model;              ///< empty: not given
  std::vector<Request> prompts;   ///< [P]; chat has one
  int n = 1;                      ///< choices of each prompt
  std::optional<int> max_tokens;  ///< none: the endpoint's default
  bool stream = false, include_usage = false, continuous_usage = false;
  bool moe_stats = false;
  bool return_token_ids = false;
  CallTools tools;
  std::string reasoning_effort;  ///< empty: not given

  size_t num_choices() const noexcept { return prompts.size() * static_cast<size_t>(n); }
};

/// Parses a body. `defaults` is what the model wants where the client says nothing.
std::optional<ApiError> parse_call(std::string_view body, Endpoint endpoint,
                                   const SamplingParams& defaults, UnknownFields unknown,
                                   Call& call);

/// Parses a body to an object within kMaxBodyDepth.
std::optional<ApiError> parse_body(std::string_view body, Json& json);
/// An array of messages of which every content is text (messages.cpp).
std::optional<ApiError> parse_messages(const Json& json, UnknownFields unknown,
                                       std::vector<Message>& messages);
/// The last of them can be continued.
std::optional<ApiError> check_continued(const std::vector<Message>& messages);

/// tools, tool_choice, parallel_tool_calls (call_tools.cpp).
void read_tools(Fields& fields, CallTools& tools);
/// What the template is told beside messages and tools.
void read_chat_options(Fields& fields, ChatOptions& chat, std::string& reasoning_effort);

/// Refuses what is known and not served, and in strict mode what is unknown (call_fields.cpp).
std::optional<ApiError> check_field_name(const Json::Member& member, Endpoint endpoint,
                                         UnknownFields unknown);
std::optional<ApiError> check_field_names(const Json& body, Endpoint endpoint,
                                          UnknownFields unknown);

}  // namespace switchyard::serve
