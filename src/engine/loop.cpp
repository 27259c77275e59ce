// SPDX-License-Identifier: Apache-2.0
#include "engine/loop.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/result.h"
#include "engine/make_live.h"

namespace switchyard::engine {
namespace {

/// Of how many sequences a step goes on at most. An end that the host cannot foresee (a stop token, a stop string, a cancel) makes a
/// step that has gone ahead a waste for all: with n sequences of answers of some 200 tokens n ends in 200 steps, n * 0.5 % of the time.
/// Going ahead gains about 2 % at one sequence and 1 % at 8 (bench/results/notes-gpu-step.md): more than that up to 2, less from 4 on.
constexpr size_t kMostGoOn = 2;

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Of one engine; see schedule/block_key.h.
SipKey fresh_secret() {
  std::random_device device;
  SipKey secret{};
  for (uint64_t& word : secret) word = uint64_t{device()} << 32 | device();
  return secret;
}

RequestTimings timings_of(const Live& live) {
  const Moments& at = live.moments;
  RequestTimings timings;
  timings.prompt_tokens = live.prompt_tokens;
  timings.cached_tokens = live.cached_tokens;
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
      secret_(fresh_secret()),
      door_(options.queue),
      scheduler_(options.limits),
      batch_(options.limits,
             schedule::blocks_for(options.max_model_len, options.limits.block_tokens)),
      sampler_(options.vocab, options.limits.max_sequences, pool),
      constraints_(tokenizer, options.vocab, options.eos_ids),
      statistics_(options.experts, options.capacity_factor),
      instruments_(metrics, static_cast<int>(options.experts.size()), options.metric_detail) {
  const auto most = static_cast<size_t>(options.limits.max_sequences);
  runs_.reserve(most);
  picks_.reserve(most);
  skip_.reserve(most);
  rows_.reserve(most);
  finish_.reserve(most);
  outcomes_.reserve(most);
  if (model.can_pick()) device_sampling_.emplace(options.vocab, options.limits.max_sequences);
  if (options_.routing_sink)
    recorder_.emplace(options_.routing_sink, options_.routing_detail, statistics_.num_layers(),
                      statistics_);
}

Result<Ticket> EngineLoop::reserve() {
  auto ticket = door_.enter();
  if (!ticket.ok())
    instruments_.on_refusal(ticket.error().code == Code::overloaded ? Refusal::queue_full
                                                                    : Refusal::draining);
  return ticket;
}

Result<RequestId> EngineLoop::submit(Request request, EventSink sink, Ticket ticket) {
  const Status room = ticket.add_tokens(std::ssize(request.prompt_tokens));
  if (!room.ok()) {
    instruments_.on_refusal(Refusal::queue_tokens);
    return room.error();
  }
  SWITCHYARD_ASSIGN(auto constraint, constraints_.compile(request.constraint, request.sampling));
  SWITCHYARD_ASSIGN(auto live,
                    make_live(std::move(request), std::move(sink), options_, tokenizer_, secret_));
  live->constraint = std::move(constraint);
  if (live->counts_picks) live->picks.assign(statistics_.num_slots(), 0);
  live->ticket = std::move(ticket);
  return intake_.push(std::move(live));
}

void EngineLoop::run() {
  while (!stopping_)
    if (!turn() && !stopping_) intake_.wait(wake_s_ - seconds(now_ns()));
}

bool EngineLoop::turn() {
  take_in_news();
  const int64_t start_ns = now_ns();
  const schedule::Decision& decision = scheduler_.decide(seconds(start_ns));
  wake_s_ = decision.wake_s;
  end_expired(decision);
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
    finish_step(decision, start_ns);
    emit(decision);
    model_.between_steps();
    steps_.store(steps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  instruments_.on_counts(scheduler_.counts(), scheduler_.limits());
  return !decision.idle();
}

void EngineLoop::finish_step(const schedule::Decision& decision, int64_t start_ns) {
  const int64_t end_ns = now_ns();
  const double step_s = seconds(end_ns - start_ns);
  const StepRouting routing = statistics_.end_step(step_s);
  scheduler_.commit(decision, outcomes_, {.experts_touched = routing.mean_experts});
  tracer_.add_step(decision.num_tokens, std::ssize(decision.runs), start_ns, end_ns);
  instruments_.on_step(decision, step_s, routing, statistics_);
  instruments_.on_steps_ahead(model_.steps_ahead());
  instruments_.on_guesses(model_.guesses());
  if (tracer_.on()) instruments_.on_phases(stage_of(decision), tracer_.times());
  if (records_step_) recorder_->end_step();
}

Result<model::StepOutput> EngineLoop::forward(const schedule::Decision& decision) {
  model::StepInput input = batch_.build(decision, runs_);
  if (device_sampling_) input.sample = device_sampling_->specs(decision, runs_);
  if (device_sampling_ && goes_on(decision)) input.goes_on_unless = &intake_.has_news();
  statistics_.begin_step(batch_.seq_offset(), picks_, skip_);
  records_step_ = recorder_ && (!options_.wants_routing || options_.wants_routing());
  if (!records_step_) return model_.forward(input, &statistics_);
  recorder_->begin_step(decision, runs_, stage_of(decision));
  return model_.forward(input, &*recorder_);
}

/// As far as can be known before the step: few run, nobody waits, and every sequence gets a token on the device that is not its last.
bool EngineLoop::goes_on(const schedule::Decision& decision) const {
  if (!decision.decode_only || runs_.size() > kMostGoOn || scheduler_.counts().waiting > 0) {
    return false;
  }
  return std::none_of(runs_.begin(), runs_.end(), [](const Live* live) {
    return live->matcher || DeviceSampling::is_host_row(*live) ||
           static_cast<int>(live->tokens.size()) + 1 >= live->max_tokens;
  });
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

/// Some of the news may have been taken in, some not, when it was thrown; the scheduler is not asked any more.
void EngineLoop::end_all(const Error& error) {
  door_.close();
  intake_.stop();
  const auto keep_news = [&] {
    for (auto& live : news_.requests)
      if (live) live_.emplace(live->id, std::move(live));
  };
  keep_news();
  if (intake_.drain(news_)) keep_news();
  while (!live_.empty()) {
    Live& live = *live_.begin()->second;
    live.event.text.clear();
    live.event.tokens.clear();
    live.event.error = error;
    end(live, FinishReason::error);
  }
}

void EngineLoop::take_in(std::unique_ptr<Live> live) {
  Live& request = *live;
  live_.emplace(request.id, std::move(live));
  const double now_s = seconds(request.moments.submitted);
  const auto deadline_s = [&](double timeout_s) {
    return timeout_s > 0 ? now_s + timeout_s : schedule::kNever;
  };
  const Status added = scheduler_.add({.id = request.id,
                                       .prompt_tokens = request.prompt_tokens,
                                       .max_tokens = request.max_tokens,
                                       .now_s = now_s,
                                       .priority = request.priority,
                                       .queue_deadline_s = deadline_s(request.queue_timeout_s),
                                       .deadline_s = deadline_s(request.timeout_s),
                                       .keys = request.prompt_keys});
  request.prompt_keys = {};
  request.sequence = scheduler_.find(request.id);
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
  live.event.logprobs.clear();
  live.text.finish(live.event.text);
  end(live, FinishReason::cancelled);
}

void EngineLoop::end_expired(const schedule::Decision& decision) {
  for (const auto& [id, deadline] : decision.expired) {
    Live& live = *live_.find(id)->second;
    const bool queue = deadline == schedule::Deadline::queue;
    instruments_.on_expiry(deadline);
    live.event.error =
        fail(Code::deadline, "deadline_exceeded: {} of {} s is over after {} output tokens",
             queue ? "queue_timeout_s" : "timeout_s", queue ? live.queue_timeout_s : live.timeout_s,
             live.output_tokens());
    live.text.finish(live.event.text);
    end(live, FinishReason::error);
  }
}

/// The first step of a request.
void EngineLoop::begin(Live& live, int64_t now_ns) {
  live.moments.first_run = now_ns;
  live.ticket.give_back();
  live.cached_tokens = live.counted_tokens = live.sequence->cached_tokens;
  // Not on arrival: those who wait may be many, and their longest answers long.
  live.tokens.reserve(static_cast<size_t>(live.max_tokens));
  live.event.text.reserve(TextStream::kPieceBytes);
  if (live.constraint != nullptr) live.matcher.emplace(live.constraint);
}

/// Finds the requests of the step, and who of them computes again what was counted before.
void EngineLoop::gather(const schedule::Decision& decision, int64_t now_ns) {
  statistics_.add_preemptions(decision.preempted.size());
  runs_.clear();
  picks_.clear();
  skip_.clear();
  for (const schedule::Decision::Run& run : decision.runs) {
    Live& live = *live_.find(run.id)->second;
    if (live.moments.first_run == 0) begin(live, now_ns);
    runs_.push_back(&live);
    picks_.push_back(&live.picks);
    skip_.push_back(std::clamp(live.counted_tokens - run.first_token, 0, run.num_tokens));
    live.counted_tokens = std::max(live.counted_tokens, run.first_token + run.num_tokens);
  }
}

Result<std::span<const Pick>> EngineLoop::pick(const schedule::Decision& decision,
                                               const model::StepOutput& output) {
  const ZoneScope zone(&tracer_, Zone::sampling);
  for (size_t i = 0; i < runs_.size(); ++i)
    if (decision.runs[i].samples && runs_[i]->matcher)
      runs_[i]->allowed = runs_[i]->matcher->allowed();
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
                     live.seed,
                     live.allowed,
                     live.logprobs.get()});
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
    finish_[i] = picked.token < 0 ? refuse(live, picked) : accept(live, picked.token, now);
    if (finish_[i] == FinishReason::none) continue;
    outcomes_[i] =
        finish_[i] == FinishReason::error ? schedule::Outcome::failed : schedule::Outcome::ended;
  }
}

/// There is no token.
FinishReason EngineLoop::refuse(Live& live, const Pick& pick) {
  if (pick.non_finite) {
    instruments_.on_non_finite();
    live.event.error = fail(Code::internal,
                            "non_finite: the logits of token {} hold NaN or infinity; other "
                            "requests are not affected. Run `switchyard check` on the model, and "
                            "try f32",
                            live.tokens.size());
  } else {
    live.event.error = fail(Code::unsupported,
                            "no token of the vocabulary goes on with the constrained output, at "
                            "output token {}",
                            live.output_tokens());
  }
  return FinishReason::error;
}

FinishReason EngineLoop::accept(Live& live, int32_t token, int64_t now) {
  instruments_.on_token(live, live.moments.last_token, now);
  statistics_.add_output(1);
  if (live.moments.first_token == 0) {
    live.moments.first_token = now;
    statistics_.add_request(static_cast<uint64_t>(live.prompt_tokens),
                            static_cast<uint64_t>(live.cached_tokens));
  }
  live.moments.last_token = now;
  live.tokens.push_back(token);
  live.event.tokens.push_back(token);
  if (const auto* key = name_filled_block(live, options_.limits.block_tokens, secret_))
    scheduler_.add_key(live.id, *key);
  const bool fits = !live.matcher || live.matcher->accept(token);
  SWITCHYARD_DCHECK(fits, "token {} was allowed and does not fit", token);
  const auto& ends = live.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return end_at(live, token);
  if (live.logprobs) live.event.logprobs.push_back(*live.logprobs);
  if (live.text.push(token, live.event.text)) return FinishReason::stop;
  if (!fits) return refuse(live, {});
  if (live.matcher && live.matcher->must_end()) {
    live.text.finish(live.event.text);
    return FinishReason::stop;
  }
  if (static_cast<int>(live.tokens.size()) < live.max_tokens) return FinishReason::none;
  return live.text.finish(live.event.text) ? FinishReason::stop : FinishReason::length;
}

/// A token that ends the output leaves no text, unless the caller has chosen it and wants to see it.
FinishReason EngineLoop::end_at(Live& live, int32_t token) {
  const auto& chosen = live.params.stop_token_ids;
  if (live.params.include_stop && std::find(chosen.begin(), chosen.end(), token) != chosen.end() &&
      live.text.push(token, live.event.text))
    return FinishReason::stop;
  live.text.finish(live.event.text);
  return FinishReason::stop;
}

/// A failing step fails its sequences, not the process.
void EngineLoop::fail_runs(const Error& error) {
  finish_.assign(runs_.size(), FinishReason::error);
  outcomes_.assign(runs_.size(), schedule::Outcome::failed);
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
      live.event.logprobs.clear();
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
  if (live.counts_picks) event.moe = statistics_.request_moe(live.picks);
  instruments_.on_end(reason, event.timings, live.moments, now_ns());
  live.sink(event);
  live_.erase(live.id);
  intake_.ended();
}

}  // namespace switchyard::engine
