// SPDX-License-Identifier: Apache-2.0
// The JSON of answers: whole ones and the chunks of a stream, for both endpoints.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "switchyard/request.h"

#include "serve/call.h"

namespace switchyard::serve {

/// What is the same in everything that one call is answered with.
struct ReplyFrame {
  Endpoint endpoint = Endpoint::chat;
  std::string id, model;
  int64_t created = 0;                                   ///< seconds since 1970
  std::function<std::string(int32_t)> token_bytes = {};  ///< for log probabilities
  bool token_ids = false;                                ///< show the ids of prompt and output
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
  int64_t cached_tokens = 0;  ///< of prompt_tokens: not computed again
};

struct Choice {
  std::string text;
  FinishReason finish = FinishReason::none;
  int64_t output_tokens = 0;
  std::optional<RequestMoe> moe;  ///< when asked for
  std::vector<ToolCall> calls;
  bool is_cut = false;  ///< the arguments of the last call are not whole
  bool reports_logprobs = false;
  std::vector<TokenLogprobs> logprobs;
  std::vector<int32_t> tokens;         ///< when ids are shown
  std::vector<int32_t> prompt_tokens;  ///< the same, of its prompt
};

/// "tool_calls" where something was called and all is said: a client may run the calls.
std::string_view finish_name(FinishReason finish, bool called);

/// The object of a call that does not stream.
std::string whole_json(const ReplyFrame& frame, std::span<const Choice> choices,
                       const Usage& usage);

/// What a chunk says of one choice.
struct Delta {
  int index = 0;
  std::string_view text{};
  bool role = false;          ///< names the role: the first of a chat choice
  bool null_content = false;  ///< beside the role: nothing is said before a call
  FinishReason finish = FinishReason::none;
  bool called = false;  ///< when it is finished: it calls, and all calls are whole
  const RequestMoe* moe = nullptr;
  int call = -1;                       ///< which tool call, from 0
  std::string_view call_id{}, name{};  ///< where the call begins
  std::string_view arguments{};
  bool reports_logprobs = false;
  std::span<const TokenLogprobs> logprobs{};
  int64_t text_offset = 0;  ///< characters before, for log probabilities of completions
  std::span<const int32_t> tokens{};
  std::span<const int32_t> prompt_tokens{};  ///< in the first chunk of a choice
};
/// One "data: ..." event with its blank line.
std::string chunk_event(const ReplyFrame& frame, const Delta& delta, const Usage* usage);
/// The event after the last choice, when usage was asked for: no choices.
std::string usage_event(const ReplyFrame& frame, const Usage& usage);
std::string error_event(const ApiError& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace switchyard::serve
