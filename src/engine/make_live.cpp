// SPDX-License-Identifier: Apache-2.0
#include "engine/make_live.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/result.h"

namespace switchyard::engine {
namespace {

/// A seed that nobody chose: from the clock, and different for every call.
uint64_t fresh_seed() {
  static std::atomic<uint32_t> calls{0};
  const auto clock = static_cast<uint64_t>(now_ns());
  const PhiloxBlock words = philox4x32(
      {static_cast<uint32_t>(clock), static_cast<uint32_t>(clock >> 32), calls.fetch_add(1), 0},
      {0x53574954, 0x43485944});
  return uint64_t{words[0]} << 32 | words[1];
}

Status check_token_ids(std::span<const int32_t> tokens, int vocab, std::string_view field) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return fail(Code::bad_request, "{}[{}] is {}, expected a token id in [0, {})", field, i,
                  tokens[i], vocab);
  return {};
}

Status check_terms(const Request& request) {
  if (request.priority < -schedule::kMaxPriority || request.priority > schedule::kMaxPriority)
    return fail(Code::bad_request, "priority is {}, expected -{} (first) to {}", request.priority,
                schedule::kMaxPriority, schedule::kMaxPriority);
  const std::pair<const char*, double> timeouts[] = {{"queue_timeout_s", request.queue_timeout_s},
                                                     {"timeout_s", request.timeout_s}};
  for (const auto& [field, seconds] : timeouts)
    if (!(seconds >= 0) || std::isinf(seconds))
      return fail(Code::bad_request, "{} is {}, expected seconds of at least 0 (0: none)", field,
                  seconds);
  return {};
}

Status check_request(const Request& request, const LoopOptions& options) {
  SWITCHYARD_TRY(request.sampling.check());
  SWITCHYARD_TRY(check_terms(request));
  const std::vector<int32_t>& prompt = request.prompt_tokens;
  if (prompt.empty())
    return fail(Code::bad_request, "the prompt is empty: expected at least one token");
  SWITCHYARD_TRY(check_token_ids(prompt, options.vocab, "prompt_tokens"));
  SWITCHYARD_TRY(check_token_ids(request.sampling.stop_token_ids, options.vocab, "stop_token_ids"));
  SWITCHYARD_TRY(check_token_ids(request.sampling.shown_tokens, options.vocab, "shown_tokens"));
  for (const TokenBias& bias : request.sampling.logit_bias)
    SWITCHYARD_TRY(check_token_ids({&bias.token, 1}, options.vocab, "logit_bias"));
  if (prompt.size() >= static_cast<size_t>(options.max_model_len))
    return fail(Code::bad_request,
                "the prompt has {} tokens, but prompt and output together may have {}: shorten it",
                prompt.size(), options.max_model_len);
  return {};
}

void name_prompt_blocks(Live& live, const Request& request, int block_tokens,
                        const SipKey& secret) {
  live.reuses_prefix = true;
  live.last_key = schedule::first_key(secret, request.cache_salt);
  const std::span<const int32_t> prompt(live.tokens);
  const auto block = static_cast<size_t>(block_tokens);
  for (size_t first = 0; first + block <= prompt.size(); first += block) {
    live.last_key = schedule::next_key(secret, live.last_key, prompt.subspan(first, block));
    live.prompt_keys.push_back(live.last_key);
  }
}

}  // namespace

Result<std::unique_ptr<Live>> make_live(Request request, EventSink sink, const LoopOptions& options,
                                        const text::Tokenizer& tokenizer, const SipKey& secret) {
  SWITCHYARD_TRY(check_request(request, options));
  const SamplingParams& given = request.sampling;
  auto live = std::make_unique<Live>(
      TextStream(tokenizer, given.stop, given.include_stop,
                 {.skip_special_tokens = given.skip_special_tokens, .shown = given.shown_tokens}),
      std::move(sink));
  live->prompt_tokens = static_cast<int>(request.prompt_tokens.size());
  const int room = options.max_model_len - live->prompt_tokens;
  live->max_tokens = live->prompt_tokens + std::min(request.sampling.max_tokens, room);
  live->tokens = std::move(request.prompt_tokens);
  if (options.prefix_cache && request.reuse_prefix)
    name_prompt_blocks(*live, request, options.limits.block_tokens, secret);
  SamplingParams& params = request.sampling;
  if (!params.ignore_eos) live->end_tokens = options.eos_ids;
  live->end_tokens.insert(live->end_tokens.end(), params.stop_token_ids.begin(),
                          params.stop_token_ids.end());
  live->seed = params.seed ? *params.seed : fresh_seed();
  if (params.logprobs) live->logprobs = std::make_unique<TokenLogprobs>();
  live->params = std::move(params);
  live->topic = std::move(request.topic);
  live->counts_picks = request.moe_stats;
  live->priority = request.priority;
  live->queue_timeout_s = request.queue_timeout_s;
  live->timeout_s = request.timeout_s;
  live->moments.submitted = now_ns();
  return live;
}

const schedule::BlockKey* name_filled_block(Live& live, int block_tokens, const SipKey& secret) {
  const auto block = static_cast<size_t>(block_tokens);
  if (!live.reuses_prefix || live.tokens.size() % block != 0) return nullptr;
  const auto last = std::span<const int32_t>(live.tokens).last(block);
  live.last_key = schedule::next_key(secret, live.last_key, last);
  return &live.last_key;
}

}  // namespace switchyard::engine
