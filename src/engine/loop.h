// SPDX-License-Identifier: Apache-2.0
// EngineLoop: the life of requests between the queue and their events (docs/architecture.md, "The
// life of a request").
//
// Threads: submit(), cancel(), stop(), wait_idle() and statistics() from anywhere; run() and turn()
// on one thread, the loop's, which also calls the sinks. A warm decoding step neither allocates nor
// locks.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/metrics.h"
#include "base/threads.h"
#include "base/trace.h"
#include "engine/batch.h"
#include "engine/device_sampling.h"
#include "engine/instruments.h"
#include "engine/intake.h"
#include "engine/live.h"
#include "engine/model_port.h"
#include "engine/recorder.h"
#include "engine/sampler.h"
#include "engine/statistics.h"
#include "schedule/scheduler.h"
#include "text/tokenizer.h"

namespace switchyard::engine {

struct LoopOptions {
  schedule::Limits limits;
  int max_model_len = 0;      ///< of prompt and output together; the cache holds one such sequence
  int vocab = 0;              ///< V
  std::vector<int> experts;   ///< [MoE layers] E
  float capacity_factor = 0;  ///< of the model's routers; 0: dropless
  std::vector<int32_t> eos_ids;  ///< end of sequence
  RoutingSink routing_sink;      ///< gets every step's routing; empty: nobody does
  RoutingDetail routing_detail = RoutingDetail::counts;
};

class EngineLoop {
 public:
  /// All references must outlive the loop.
  EngineLoop(ModelPort& model, const text::Tokenizer& tokenizer, const LoopOptions& options,
             Pool& pool, Tracer& tracer, MetricRegistry& metrics);

  /// Checks and queues. Errors: Code::bad_request, Code::unavailable.
  /// The topic is for recorded routings.
  Result<RequestId> submit(std::vector<int32_t> prompt, SamplingParams params, EventSink sink,
                           std::string topic = {});
  void cancel(RequestId id) { intake_.cancel(id); }
  void wait_idle() { intake_.wait_idle(); }
  /// Ends every request as cancelled and makes run() return.
  void stop() { intake_.stop(); }

  /// Turns until stop().
  void run();
  /// Takes in what is new and runs one step. False when there was nothing to run. For run() and for
  /// tests.
  bool turn();

  Statistics& statistics() noexcept { return statistics_; }
  const Statistics& statistics() const noexcept { return statistics_; }
  /// Loop thread, or when nobody turns.
  schedule::Counts counts() const noexcept { return scheduler_.counts(); }

 private:
  Result<model::StepOutput> forward(const schedule::Decision& decision);
  void take_in_news();
  void take_in(std::unique_ptr<Live> live);
  void gather(const schedule::Decision& decision, int64_t now_ns);
  Result<std::span<const Pick>> pick(const schedule::Decision& decision,
                                     const model::StepOutput& output);
  void advance(const schedule::Decision& decision, std::span<const Pick> picks);
  FinishReason accept(Live& live, int32_t token, int64_t now_ns);
  void fail_runs(const Error& error);
  void emit(const schedule::Decision& decision);
  void end(Live& live, FinishReason reason);
  void cancel_now(RequestId id);

  ModelPort& model_;
  const text::Tokenizer& tokenizer_;
  const LoopOptions options_;
  Tracer& tracer_;

  Intake intake_;
  Intake::News news_;
  schedule::Scheduler scheduler_;
  Batch batch_;
  Sampler sampler_;
  std::optional<DeviceSampling> device_sampling_;  // when the model can pick
  Statistics statistics_;
  std::optional<Recorder> recorder_;  // when there is a sink
  Instruments instruments_;
  std::unordered_map<RequestId, std::unique_ptr<Live>> live_;
  bool stopping_ = false;

  // Of the step that runs, in batch order; reused from step to step.
  std::vector<Live*> runs_;                  // [B]
  std::vector<PickCounts*> picks_;           // [B]
  std::vector<SampleRow> rows_;              // [N]
  std::vector<FinishReason> finish_;         // [B]
  std::vector<schedule::Outcome> outcomes_;  // [B]
};

}  // namespace switchyard::engine
