// SPDX-License-Identifier: Apache-2.0
// Live: a request from its submission to its last event. Made by the submitting thread, then owned
// by the loop.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "switchyard/request.h"

#include "engine/door.h"
#include "engine/statistics.h"
#include "engine/text_stream.h"
#include "grammar/matcher.h"
#include "schedule/sequence.h"

namespace switchyard::engine {

using EventSink = std::function<void(const Event&)>;

/// Moments of a request in nanoseconds of now_ns(); 0: not yet.
struct Moments {
  int64_t submitted = 0, first_run = 0, first_token = 0, last_token = 0;
};

struct Live {
  Live(TextStream text_stream, EventSink event_sink)
      : text(std::move(text_stream)), sink(std::move(event_sink)) {}

  RequestId id = 0;
  std::string topic;
  SamplingParams params;
  uint64_t seed = 0;
  Ticket ticket;  ///< its place in the queue, until its first step
  int priority = 0;
  double queue_timeout_s = 0, timeout_s = 0;  ///< 0: none
  bool counts_picks = false;
  bool reuses_prefix = false;                    ///< names its blocks, and shares them
  schedule::BlockKey last_key;                   ///< of its last full block
  std::vector<schedule::BlockKey> prompt_keys;   ///< until the scheduler has them
  const schedule::Sequence* sequence = nullptr;  ///< the scheduler's, from admission to its end
  std::vector<int32_t> tokens;  ///< prompt, then output; room for max_tokens from the first step on
  int prompt_tokens = 0;        ///< how many of them are prompt
  int max_tokens = 0;           ///< of prompt and output together
  std::vector<int32_t>
      end_tokens;  ///< end the output: end of sequence unless ignored, and the caller's own
  std::shared_ptr<grammar::Constraint> constraint;  ///< null: free output
  std::optional<grammar::Matcher> matcher;          ///< of the constraint, from the first step on
  std::span<const uint64_t> allowed;                ///< tokens that may come in this step
  std::unique_ptr<TokenLogprobs> logprobs;          ///< of the step's token; null: not asked for
  TextStream text;
  EventSink sink;
  Moments moments;
  int cached_tokens = 0;   ///< prompt tokens from the prefix cache
  PickCounts picks;        ///< [MoE layer][expert], see Statistics::slot
  int counted_tokens = 0;  ///< positions below have been counted in picks, or were cached
  Event event;             ///< reused from token to token, so that a warm step allocates nothing

  int output_tokens() const noexcept { return static_cast<int>(tokens.size()) - prompt_tokens; }
};

}  // namespace switchyard::engine
