// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_decode.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "base/random.h"
#include "base/trace.h"

namespace switchyard::cli {
namespace {

constexpr uint32_t kTokenSeed = 42;

/// What the loop thread sees of a run. Sequences that start early give tokens until the last one has started.
class Watch {
 public:
  Watch(Engine& engine, const DecodeShape& shape)
      : engine_(engine), shape_(shape), tokens_(static_cast<size_t>(shape.sequences)) {}

  /// Loop thread.
  void see(size_t index, const Event& event) {
    const std::lock_guard lock(mutex_);
    if (event.error && !error_) error_ = *event.error;
    if (event.finish != FinishReason::none) ended_ = true;
    tokens_[index] += static_cast<int>(event.tokens.size());
    if (!event.tokens.empty() && tokens_[index] == static_cast<int>(event.tokens.size()))
      start(index);
    if (started_ == tokens_.size() && index == last_ && !finished_ &&
        tokens_[index] == base_ + shape_.steps)
      finish();
    if (finished_ || ended_) changed_.notify_all();
  }

  /// Main thread: until enough steps are measured, or a sequence has ended, which none should.
  Result<DecodeRun> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ || ended_; });
    if (error_) return *error_;
    if (!finished_)
      return fail(Code::internal, "a sequence ended before {} steps were measured", shape_.steps);
    return run_;
  }

 private:
  void start(size_t index) {
    if (++started_ < tokens_.size()) return;
    last_ = index;
    base_ = tokens_[index];
    const int made = std::accumulate(tokens_.begin(), tokens_.end(), 0);
    run_.mean_context = shape_.context + static_cast<double>(made) / shape_.sequences +
                        static_cast<double>(shape_.steps) / 2;
    engine_.reset_stats();
    start_ns_ = now_ns();
  }
  void finish() {
    run_.seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9;
    run_.experts_touched = mean_experts_touched(engine_);
    run_.imbalance = mean_imbalance(engine_);
    finished_ = true;
  }

  Engine& engine_;
  const DecodeShape shape_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> tokens_;  // of each sequence
  size_t started_ = 0, last_ = 0;
  int base_ = 0;
  int64_t start_ns_ = 0;
  bool finished_ = false, ended_ = false;
  std::optional<Error> error_;
  DecodeRun run_;
};

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double mean_experts_touched(const Engine& engine) { return mean(engine.stats().experts_touched); }
double mean_imbalance(const Engine& engine) { return mean(engine.stats().imbalance); }

std::vector<int32_t> bench_prompt(int tokens, int vocab, uint32_t stream) {
  std::vector<int32_t> prompt;
  prompt.reserve(static_cast<size_t>(tokens));
  for (int i = 0; i < tokens; ++i)
    prompt.push_back(static_cast<int32_t>(
        philox4x32({static_cast<uint32_t>(i), stream, 0, 0}, {kTokenSeed, 0})[0] %
        static_cast<uint32_t>(vocab)));
  return prompt;
}

Result<DecodeRun> run_decode(Engine& engine, const DecodeShape& shape, int max_step_tokens,
                             uint32_t stream) {
  const ModelSummary& summary = engine.summary();
  // Steps that may pass before the last prompt is in, while the first sequences go on: twice what the prompts fill, and some in
  // which requests are still being submitted.
  constexpr int64_t kSubmitting = 32;
  const int64_t room = std::max(1, max_step_tokens - shape.sequences);
  const int64_t prompt_steps = 2 * (int64_t{shape.sequences} * shape.context / room) + kSubmitting;
  const int64_t needed = shape.context + prompt_steps + shape.steps;
  if (needed > summary.max_model_len)
    return fail(Code::bad_request,
                "{} sequences of {} prompt and {} measured tokens may reach {} positions, but "
                "sequences may have {}: raise --max-model-len or lower the context",
                shape.sequences, shape.context, shape.steps, needed, summary.max_model_len);
  Watch watch(engine, shape);
  std::vector<RequestId> ids;
  std::optional<Error> refused;
  for (int b = 0; b < shape.sequences && !refused; ++b) {
    Request request;
    request.moe_stats = false;
    request.prompt_tokens =
        bench_prompt(shape.context, summary.vocab, stream * 4096 + static_cast<uint32_t>(b));
    request.sampling.temperature = 0;
    request.sampling.max_tokens = static_cast<int>(prompt_steps) + shape.steps;
    request.sampling.ignore_eos = true;
    const auto id = engine.submit(std::move(request), [&watch, b](const Event& event) {
      watch.see(static_cast<size_t>(b), event);
    });
    if (id.ok()) {
      ids.push_back(*id);
    } else {
      refused = id.error();
    }
  }
  Result<DecodeRun> run = refused ? Result<DecodeRun>(*refused) : watch.wait();
  for (const RequestId id : ids) engine.cancel(id);
  engine.wait_idle();
  return run;
}

double step_bytes(const ModelSummary& summary, const DecodeShape& shape, const DecodeRun& run) {
  const double experts = static_cast<double>(summary.moe_layers) * summary.experts;
  const double expert_bytes =
      experts > 0 ? static_cast<double>(summary.expert_bytes) / experts : 0.0;
  const double kv_bytes =
      static_cast<double>(summary.kv_cache_bytes) / static_cast<double>(summary.kv_tokens);
  return static_cast<double>(summary.weight_bytes - summary.expert_bytes - summary.lookup_bytes -
                             summary.copy_bytes) +
         summary.moe_layers * run.experts_touched * expert_bytes +
         shape.sequences * run.mean_context * kv_bytes;
}

}  // namespace switchyard::cli
