// SPDX-License-Identifier: Apache-2.0
// Instruments: the engine's metrics. All series are registered before the loop starts; updates are
// lock-free and come from the loop thread, but for on_refusal().
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "switchyard/options.h"
#include "switchyard/routing.h"

#include "base/metrics.h"
#include "base/trace.h"
#include "engine/live.h"
#include "engine/statistics.h"
#include "schedule/scheduler.h"

namespace switchyard::engine {

/// What a step is made of; a label of many series.
using Stage = StepStage;
inline constexpr int kNumStages = 3;
Stage stage_of(const schedule::Decision& decision);

/// Why a request was turned away at the door.
enum class Refusal : uint8_t { queue_full, queue_tokens, draining };

class Instruments {
 public:
  /// Below MetricDetail::layer all layers share their series, and have no imbalance.
  Instruments(MetricRegistry& registry, int num_moe_layers,
              MetricDetail detail = MetricDetail::layer);

  /// A token has come: the previous one at previous_ns, or none when 0.
  void on_token(const Live& live, int64_t previous_ns, int64_t now_ns);
  void on_end(FinishReason reason, const RequestTimings& timings, const Moments& moments,
              int64_t now_ns);
  void on_non_finite() { non_finite_.add(); }
  /// Any thread.
  void on_refusal(Refusal reason) { refused_[static_cast<size_t>(reason)]->add(); }
  void on_expiry(schedule::Deadline deadline) { expired_[static_cast<size_t>(deadline)]->add(); }
  void on_step(const schedule::Decision& decision, double seconds, const StepRouting& routing,
               const Statistics& statistics);
  /// So far.
  void on_steps_ahead(const model::AheadCounts& counts);
  void on_guesses(const model::GuessCounts& counts);
  /// Seconds by phase so far, after a step of that kind.
  void on_phases(Stage stage, const ZoneTimes& times);
  /// After every turn, also one without a step.
  void on_counts(const schedule::Counts& counts, const schedule::Limits& limits);

 private:
  using ByStage = std::array<Histogram*, kNumStages>;
  struct LayerSeries {
    std::array<Counter*, kNumStages> routed{}, dropped{};
    Counter* unrouted = nullptr;
    Gauge* imbalance = nullptr;  // null: nobody wants it by layer
    uint64_t seen_routed = 0, seen_dropped = 0, seen_unrouted = 0;  // when last asked
  };
  static ByStage by_stage(MetricRegistry& registry, const char* name, const char* help,
                          const std::vector<double>& bounds);
  static LayerSeries layer_series(MetricRegistry& registry, int layer, MetricDetail detail);

  Gauge &running_, &waiting_capacity_, &waiting_kv_blocks_;
  std::array<Counter*, 4> finished_{};  // stop, length, cancelled, error
  std::array<Counter*, 3> refused_{};   // by Refusal
  std::array<Counter*, 2> expired_{};   // by schedule::Deadline
  std::array<Counter*, 3> ahead_{};     // used, wasted, failed
  std::array<Counter*, 2> guesses_{};   // right, wrong
  Counter &preemptions_, &recomputed_tokens_, &held_steps_;
  Counter &prompt_computed_, &prompt_cached_, &generation_tokens_;
  Counter &prefix_queries_, &prefix_hits_, &evictions_;
  Histogram &request_prompt_tokens_, &request_generation_tokens_;
  Histogram &time_to_first_token_, &inter_token_latency_, &time_per_output_token_;
  Histogram &request_duration_, &request_queue_, &request_prefill_, &request_decode_;
  ByStage step_duration_, step_tokens_, step_sequences_;
  Gauge &kv_usage_, &kv_free_, &kv_cached_, &kv_used_;
  Gauge& last_experts_;
  ByStage step_imbalance_, step_experts_;
  Counter &non_finite_, &non_finite_router_;
  std::vector<LayerSeries> layers_;  // [MoE layers]
  std::array<std::array<FloatCounter*, kNumZones>, kNumStages> phases_{};
  ZoneTimes seen_phases_;            // when last asked
  schedule::Counts seen_;            // when last asked
  model::AheadCounts seen_ahead_;    // when last asked
  model::GuessCounts seen_guesses_;  // when last asked
  uint64_t seen_unusable_ = 0;
};

}  // namespace switchyard::engine
