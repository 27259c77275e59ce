// SPDX-License-Identifier: Apache-2.0
#include "engine/loop.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/random.h"
#include "base/result.h"

namespace switchyard::engine {
namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

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

RequestTimings timings_of(const Live& live) {
  const Moments& at = live.moments;
  RequestTimings timings;
  timings.prompt_tokens = live.prompt_tokens;
  timings.output_tokens = live.output_tokens();
  if (at.first_run > 0) timings.queue_s = seconds(at.first_run - at.submitted);
  if (at.first_token > 0) {
    timings.prefill_s = seconds(at.first_token - at.first_run);
    timings.decode_s = seconds(at.last_token - at.first_token);
  }
  return timings;
}

}  // namespace

EngineLoop::EngineLoop(ModelPort& model, const text::Tokenizer& tokenizer,
                       const LoopOptions& options, Pool& pool, Tracer& tracer,
                       MetricRegistry& metrics)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      tracer_(tracer),
      scheduler_(options.limits),
      batch_(options.limits,
             schedule::blocks_for(options.max_model_len, options.limits.block_tokens)),
      sampler_(options.vocab, options.limits.max_sequences, pool),
      statistics_(options.experts, options.capacity_factor),
      instruments_(metrics, static_cast<int>(options.experts.size())) {
  const auto most = static_cast<size_t>(options.limits.max_sequences);
  runs_.reserve(most);
  picks_.reserve(most);
  rows_.reserve(most);
  finish_.reserve(most);
  outcomes_.reserve(most);
  if (model.can_pick()) device_sampling_.emplace(options.vocab, options.limits.max_sequences);
  if (options_.routing_sink)
    recorder_.emplace(options_.routing_sink, options_.routing_detail, statistics_.num_layers(),
                      statistics_);
}

Result<RequestId> EngineLoop::submit(std::vector<int32_t> prompt, SamplingParams params,
                                     EventSink sink, std::string topic) {
  SWITCHYARD_TRY(params.check());
  if (prompt.empty())
    return fail(Code::bad_request, "the prompt is empty: expected at least one token");
  SWITCHYARD_TRY(check_token_ids(prompt, options_.vocab, "prompt_tokens"));
  SWITCHYARD_TRY(check_token_ids(params.stop_token_ids, options_.vocab, "stop_token_ids"));
  if (prompt.size() >= static_cast<size_t>(options_.max_model_len))
    return fail(Code::bad_request,
                "the prompt has {} tokens, but prompt and output together may have {}: shorten it",
                prompt.size(), options_.max_model_len);
  auto live = std::make_unique<Live>(TextStream(tokenizer_, params.stop), std::move(sink));
  live->topic = std::move(topic);
  live->prompt_tokens = static_cast<int>(prompt.size());
  const int room = options_.max_model_len - live->prompt_tokens;
  live->max_tokens = live->prompt_tokens + std::min(params.max_tokens, room);
  live->tokens = std::move(prompt);
  live->tokens.reserve(static_cast<size_t>(live->max_tokens));
  live->event.text.reserve(TextStream::kPieceBytes);
  if (!params.ignore_eos) live->end_tokens = options_.eos_ids;
  live->end_tokens.insert(live->end_tokens.end(), params.stop_token_ids.begin(),
                          params.stop_token_ids.end());
  live->seed = params.seed ? *params.seed : fresh_seed();
  live->params = std::move(params);
  live->picks.assign(statistics_.num_slots(), 0);
  live->moments.submitted = now_ns();
  return intake_.push(std::move(live));
}

void EngineLoop::run() {
  while (!stopping_)
    if (!turn() && !stopping_) intake_.wait();
}

bool EngineLoop::turn() {
  take_in_news();
  const int64_t start_ns = now_ns();
  const schedule::Decision& decision = scheduler_.decide(seconds(start_ns));
  gather(decision, start_ns);
  if (!decision.idle()) {
    const Result<model::StepOutput> output = forward(decision);
    const Result<std::span<const Pick>> picks =
        output.ok() ? pick(decision, *output) : output.error();
    if (picks.ok()) {
      advance(decision, *picks);
    } else {
      fail_runs(picks.error());
    }
    scheduler_.commit(decision, outcomes_);
    const int64_t end_ns = now_ns();
    const double step_s = seconds(end_ns - start_ns);
    tracer_.add_step(decision.num_tokens, std::ssize(decision.runs), start_ns, end_ns);
    instruments_.on_step(decision, step_s, statistics_.end_step(step_s), statistics_);
    if (recorder_) recorder_->end_step();
    emit(decision);
    model_.between_steps();
  }
  instruments_.on_counts(scheduler_.counts(), scheduler_.limits());
  return !decision.idle();
}

Result<model::StepOutput> EngineLoop::forward(const schedule::Decision& decision) {
  model::StepInput input = batch_.build(decision, scheduler_, runs_);
  if (device_sampling_) input.sample = device_sampling_->specs(decision, runs_);
  statistics_.begin_step(batch_.seq_offset(), picks_);
  if (!recorder_) return model_.forward(input, &statistics_);
  recorder_->begin_step(decision, runs_, stage_of(decision));
  return model_.forward(input, &*recorder_);
}

void EngineLoop::take_in_news() {
  if (!intake_.drain(news_)) return;
  for (auto& live : news_.requests) take_in(std::move(live));
  for (const RequestId id : news_.cancelled) cancel_now(id);
  if (!news_.stopping) return;
  stopping_ = true;
  std::vector<RequestId> rest;
  for (const auto& [id, live] : live_) rest.push_back(id);
  std::sort(rest.begin(), rest.end());
  for (const RequestId id : rest) cancel_now(id);
}

void EngineLoop::take_in(std::unique_ptr<Live> live) {
  Live& request = *live;
  live_.emplace(request.id, std::move(live));
  const Status added = scheduler_.add(request.id, request.prompt_tokens, request.max_tokens,
                                      seconds(request.moments.submitted));
  if (added.ok()) return;
  request.event.error = added.error();
  end(request, FinishReason::error);
}

void EngineLoop::cancel_now(RequestId id) {
  const auto at = live_.find(id);
  if (at == live_.end()) return;
  scheduler_.cancel(id);
  Live& live = *at->second;
  live.event.text.clear();
  live.event.tokens.clear();
  live.text.finish(live.event.text);
  end(live, FinishReason::cancelled);
}

/// Finds the requests of the step, and forgets the picks of those whose tokens will be computed
/// again.
void EngineLoop::gather(const schedule::Decision& decision, int64_t now_ns) {
  for (const RequestId id : decision.preempted) {
    PickCounts& picks = live_.find(id)->second->picks;
    std::fill(picks.begin(), picks.end(), 0);
  }
  statistics_.add_preemptions(decision.preempted.size());
  runs_.clear();
  picks_.clear();
  for (const schedule::Decision::Run& run : decision.runs) {
    Live& live = *live_.find(run.id)->second;
    if (live.moments.first_run == 0) live.moments.first_run = now_ns;
    runs_.push_back(&live);
    picks_.push_back(&live.picks);
  }
}

Result<std::span<const Pick>> EngineLoop::pick(const schedule::Decision& decision,
                                               const model::StepOutput& output) {
  const ZoneScope zone(&tracer_, Zone::sampling);
  if (!output.pick.empty())
    return device_sampling_->picks(output, decision, runs_, model_, sampler_);
  SWITCHYARD_CHECK(decision.num_samples == 0 ||
                       output.logits.shape == Shape({decision.num_samples, options_.vocab}),
                   "logits {} for {} rows of {}", output.logits.shape.text(), decision.num_samples,
                   options_.vocab);
  const auto vocab = static_cast<size_t>(options_.vocab);
  rows_.clear();
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (!decision.runs[i].samples) continue;
    const Live& live = *runs_[i];
    float* const logits = output.logits.as<float>() + rows_.size() * vocab;
    rows_.push_back({{logits, vocab},
                     live.tokens,
                     live.prompt_tokens,
                     &live.params,
                     live.end_tokens,
                     live.seed});
  }
  return sampler_.pick(rows_);
}

void EngineLoop::advance(const schedule::Decision& decision, std::span<const Pick> picks) {
  finish_.assign(runs_.size(), FinishReason::none);
  outcomes_.assign(runs_.size(), schedule::Outcome::goes_on);
  const int64_t now = now_ns();
  size_t row = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (!decision.runs[i].samples) continue;
    const Pick& picked = picks[row++];
    Live& live = *runs_[i];
    if (picked.non_finite) {
      instruments_.on_non_finite();
      live.event.error = fail(Code::internal,
                              "non_finite: the logits of token {} hold NaN or infinity; other "
                              "requests are not affected. Run `switchyard check` on the model, and "
                              "try f32",
                              live.tokens.size());
      finish_[i] = FinishReason::error;
    } else {
      finish_[i] = accept(live, picked.token, now);
    }
    if (finish_[i] != FinishReason::none) outcomes_[i] = schedule::Outcome::ended;
  }
}

FinishReason EngineLoop::accept(Live& live, int32_t token, int64_t now) {
  instruments_.on_token(live, live.moments.last_token, now);
  statistics_.add_output(1);
  if (live.moments.first_token == 0) {
    live.moments.first_token = now;
    statistics_.add_request(static_cast<uint64_t>(live.prompt_tokens));
  }
  live.moments.last_token = now;
  live.tokens.push_back(token);
  live.event.tokens.push_back(token);
  const auto& ends = live.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    live.text.finish(live.event.text);
    return FinishReason::stop;
  }
  if (live.text.push(token, live.event.text)) return FinishReason::stop;
  if (static_cast<int>(live.tokens.size()) < live.max_tokens) return FinishReason::none;
  return live.text.finish(live.event.text) ? FinishReason::stop : FinishReason::length;
}

/// A failing step fails its sequences, not the process.
void EngineLoop::fail_runs(const Error& error) {
  finish_.assign(runs_.size(), FinishReason::error);
  outcomes_.assign(runs_.size(), schedule::Outcome::ended);
  for (Live* live : runs_) live->event.error = error;
}

void EngineLoop::emit(const schedule::Decision& decision) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    Live& live = *runs_[i];
    if (finish_[i] != FinishReason::none) {
      end(live, finish_[i]);
    } else if (decision.runs[i].samples) {
      live.event.id = live.id;
      live.sink(live.event);
      live.event.text.clear();
      live.event.tokens.clear();
    }
  }
}

/// The last event: whatever text and tokens are new, and the sums.
void EngineLoop::end(Live& live, FinishReason reason) {
  Event& event = live.event;
  event.id = live.id;
  event.finish = reason;
  event.timings = timings_of(live);
  event.prompt_tokens.assign(live.tokens.begin(), live.tokens.begin() + live.prompt_tokens);
  event.moe = statistics_.request_moe(live.picks);
  instruments_.on_end(reason, event.timings, live.moments, now_ns());
  live.sink(event);
  live_.erase(live.id);
  intake_.ended();
}

}  // namespace switchyard::engine
