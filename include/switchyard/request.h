// SPDX-License-Identifier: Apache-2.0
// What goes in and what comes out: a request with its sampling parameters, and the events of its
// life.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/result.h"
#include "switchyard/tools.h"

namespace switchyard {

/// What is added to the logit of one token.
struct TokenBias {
  int32_t token = 0;
  float bias = 0;  ///< [-100, 100]
};

/// How the next token is chosen. Order of the stages: biases, repetition, presence and frequency penalties,
/// temperature, top-k, top-p, min-p, draw. Defaults change nothing; temperature 0 is greedy.
struct SamplingParams {
  float temperature = 1.0f;  ///< >= 0
  int top_k = 0;             ///< 0: all
  float top_p = 1.0f;        ///< (0, 1]
  float min_p = 0.0f;        ///< [0, 1]: keep p >= min_p * largest p
  float repetition_penalty =
      1.0f;  ///< > 0; divides positive and multiplies negative logits of seen tokens
  float presence_penalty = 0.0f;   ///< [-2, 2]: subtracted once from tokens of the output
  float frequency_penalty = 0.0f;  ///< [-2, 2]: subtracted per occurrence in the output
  std::optional<uint64_t> seed;    ///< same seed, same text; none: from the clock
  int max_tokens = 256;            ///< new tokens at most
  int min_tokens = 0;              ///< end-of-sequence is masked before this many
  bool ignore_eos = false;
  std::vector<std::string> stop;  ///< text that ends the output; not emitted unless include_stop
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false;          ///< the text that ended the output is part of it
  bool skip_special_tokens = true;    ///< special tokens leave no text ...
  std::vector<int32_t> shown_tokens;  ///< ... but these do
  std::vector<TokenBias> logit_bias;  ///< at most 1,024
  std::optional<int> logprobs;        ///< [0, 20]: reports the token, and so many likeliest ones

  /// Refuses numbers out of range (and NaN) as Code::bad_request, naming the field.
  Status check() const;
};

struct Message {
  std::string role, content;
  std::vector<ToolCall> tool_calls = {};  ///< of an assistant
  std::string tool_call_id = {};          ///< of an answer, role "tool"
  std::string name = {};                  ///< of the function that answers
};

/// How messages become a prompt.
struct ChatOptions {
  std::string tools = {};               ///< a JSON array, shown to the model as it is; empty: none
  std::string template_variables = {};  ///< a JSON object: more of what the template may read
  bool add_generation_prompt = true;    ///< the prompt ends where the assistant's answer starts
  bool continue_final_message = false;  ///< the prompt ends where the last message does
};

/// What the output must be; docs/structured_output.md says which schemas are supported and how JSON is written. Compiled before
/// the request is queued: what cannot be is refused, and no output is ever freer than this. It ends when it is complete.
struct OutputConstraint {
  enum class Kind : unsigned char { none, json_object, json_schema, choices, tool_calls };
  Kind kind = Kind::none;
  std::string schema;                ///< of json_schema
  std::vector<std::string> choices;  ///< of choices: one of these texts
  std::vector<ToolSchema> tools;     ///< of tool_calls: calls of these, at least one ...
  bool several_calls = false;        ///< ... or one alone
  ToolFormat format;
  /// What may come instead of a call: nothing; any text, also in front of calls; JSON of `schema`, or any object.
  enum class Instead : unsigned char { nothing, text, json_schema, json_object };
  Instead instead = Instead::nothing;
};

/// Exactly one of prompt, prompt_tokens and messages is used: messages when not empty, else
/// prompt_tokens when not empty, else prompt.
struct Request {
  std::string prompt;
  std::vector<int32_t> prompt_tokens;
  std::vector<Message> messages;
  ChatOptions chat;  ///< of messages
  SamplingParams sampling;
  OutputConstraint constraint;  ///< not with ignore_eos or min_tokens
  std::string topic;            ///< a label for recorded routings; nothing else looks at it
  int priority = 0;             ///< [-1000, 1000], lower first; see EngineOptions::ageing_s
  double queue_timeout_s =
      0;                 ///< ends with Code::deadline unless its first step comes in time; 0: never
  double timeout_s = 0;  ///< the same for its last token
  bool reuse_prefix = true;  ///< false: computes all of its prompt, and leaves nothing to others
  bool moe_stats =
      true;  ///< counts its picks for the last event (docs/serving.md and bench_scheduler: what that costs)
  std::string cache_salt;  ///< only requests of the same salt share prefixes
};

using RequestId = uint64_t;

enum class FinishReason : unsigned char { none, stop, length, cancelled, error };
const char* finish_reason_name(FinishReason reason);

struct RequestTimings {
  double queue_s = 0;    ///< submitted to first scheduled
  double prefill_s = 0;  ///< first scheduled to first token
  double decode_s = 0;   ///< first to last token
  int prompt_tokens = 0;
  int cached_tokens = 0;  ///< of the prompt: found in the prefix cache, and not computed
  int output_tokens = 0;
};

/// Where a request's tokens were sent: picks[layer][expert], over MoE layers in order. Without those of cached tokens,
/// which were sent nowhere.
struct RequestMoe {
  std::vector<std::vector<uint32_t>> picks;
};

/// What the model thought of a token: natural logarithms of probabilities by its own logits, before anything that
/// SamplingParams do to them.
struct TokenLogprobs {
  struct One {
    int32_t token = 0;
    float logprob = 0;
  };
  One chosen;
  std::vector<One> top;  ///< the likeliest, best first
};

/// One step of a request's life. Text pieces are whole UTF-8; the last event has finish != none.
struct Event {
  RequestId id = 0;
  std::string text;             ///< newly certain text, may be empty
  std::vector<int32_t> tokens;  ///< newly produced ids
  /// One for each of them, where asked for; none for a token that ends the sequence.
  std::vector<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::none;
  std::optional<Error> error;          ///< when finish is error
  std::vector<int32_t> prompt_tokens;  ///< in the last event
  RequestTimings timings;              ///< in the last event
  RequestMoe moe;                      ///< in the last event; empty without Request::moe_stats
};

}  // namespace switchyard
