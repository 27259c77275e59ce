// SPDX-License-Identifier: Apache-2.0
// EngineLoop: the life of requests between the queue and their events (docs/architecture.md, "The
// life of a request").
//
// Threads: reserve(), submit(), cancel(), drain(), stop(), wait_idle() and statistics() from
// anywhere; run() and turn() on one thread, the loop's, which also calls the sinks. A warm decoding step neither allocates nor
// locks.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/metrics.h"
#include "base/siphash.h"
#include "base/threads.h"
#include "base/trace.h"
#include "engine/batch.h"
#include "engine/constraints.h"
#include "engine/device_sampling.h"
#include "engine/door.h"
#include "engine/instruments.h"
#include "engine/intake.h"
#include "engine/live.h"
#include "engine/loop_options.h"
#include "engine/model_port.h"
#include "engine/recorder.h"
#include "engine/sampler.h"
#include "engine/statistics.h"
#include "schedule/scheduler.h"
#include "text/tokenizer.h"

namespace switchyard::engine {

class EngineLoop {
 public:
  /// All references must outlive the loop.
  EngineLoop(ModelPort& model, const text::Tokenizer& tokenizer, const LoopOptions& options,
             Pool& pool, Tracer& tracer, MetricRegistry& metrics);

  /// A place in the queue, to be taken before anything else is done for a request. Errors:
  /// Code::overloaded, Code::unavailable.
  Result<Ticket> reserve();
  /// Checks and queues; request.prompt_tokens is the prompt. Errors: Code::bad_request,
  /// Code::overloaded, Code::unavailable.
  Result<RequestId> submit(Request request, EventSink sink, Ticket ticket);
  void cancel(RequestId id) { intake_.cancel(id); }
  void wait_idle() { intake_.wait_idle(); }
  bool wait_idle_for(double seconds) { return intake_.wait_idle_for(seconds); }
  /// No more requests; those that are in go on.
  void drain() { door_.close(); }
  /// Ends every request as cancelled and makes run() return.
  void stop() { intake_.stop(); }
  /// Requests that are in, and steps that have ended: while there are requests, the steps must rise. Any thread.
  int64_t requests() const { return intake_.alive(); }
  uint64_t steps() const noexcept { return steps_.load(std::memory_order_relaxed); }
  /// Ends every request with that error and takes no more. Loop thread, after run() has thrown.
  void end_all(const Error& error);

  /// Turns until stop().
  void run();
  /// Takes in what is new and runs one step. False when there was nothing to run, or when the step
  /// was held back. For run() and for tests.
  bool turn();

  Statistics& statistics() noexcept { return statistics_; }
  const Statistics& statistics() const noexcept { return statistics_; }
  /// Loop thread, or when nobody turns.
  schedule::Counts counts() const noexcept { return scheduler_.counts(); }

 private:
  Result<model::StepOutput> forward(const schedule::Decision& decision);
  bool goes_on(const schedule::Decision& decision) const;
  void take_in_news();
  void take_in(std::unique_ptr<Live> live);
  void end_expired(const schedule::Decision& decision);
  void gather(const schedule::Decision& decision, int64_t now_ns);
  void begin(Live& live, int64_t now_ns);
  void finish_step(const schedule::Decision& decision, int64_t start_ns);
  Result<std::span<const Pick>> pick(const schedule::Decision& decision,
                                     const model::StepOutput& output);
  void advance(const schedule::Decision& decision, std::span<const Pick> picks);
  FinishReason accept(Live& live, int32_t token, int64_t now_ns);
  static FinishReason end_at(Live& live, int32_t token);
  FinishReason refuse(Live& live, const Pick& pick);
  void fail_runs(const Error& error);
  void emit(const schedule::Decision& decision);
  void end(Live& live, FinishReason reason);
  void cancel_now(RequestId id);

  ModelPort& model_;
  const text::Tokenizer& tokenizer_;
  const LoopOptions options_;
  Tracer& tracer_;

  const SipKey secret_;  // of the keys of blocks
  Door door_;            // before the requests, which hold its tickets
  Intake intake_;
  Intake::News news_;
  schedule::Scheduler scheduler_;
  Batch batch_;
  Sampler sampler_;
  Constraints constraints_;
  std::optional<DeviceSampling> device_sampling_;  // when the model can pick
  Statistics statistics_;
  std::optional<Recorder> recorder_;  // when there is a sink
  bool records_step_ = false;         // the step that runs
  Instruments instruments_;
  std::unordered_map<RequestId, std::unique_ptr<Live>> live_;
  double wake_s_ = schedule::kNever;  // when to turn again, even if nothing has come
  bool stopping_ = false;
  std::atomic<uint64_t> steps_{0};

  // Of the step that runs, in batch order; reused from step to step.
  std::vector<Live*> runs_;                  // [B]
  std::vector<PickCounts*> picks_;           // [B]
  std::vector<int32_t> skip_;                // [B] tokens whose picks were counted before
  std::vector<SampleRow> rows_;              // [N]
  std::vector<FinishReason> finish_;         // [B]
  std::vector<schedule::Outcome> outcomes_;  // [B]
};

}  // namespace switchyard::engine
