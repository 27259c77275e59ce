// SPDX-License-Identifier: Apache-2.0
// Statistics: how tokens spread over experts, and the sums of EngineStats.
//
// The loop thread alone writes, into atomics, so that any thread may read while a step runs and a
// warm step takes no lock. Imbalance is taken per layer and step (hottest / mean picks over the
// layer's experts), then averaged over steps; picks are never summed over layers first. Picks are
// what tokens asked for; what a capacity drops of them is counted apart.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "switchyard/engine.h"

#include "engine/drop_watch.h"
#include "model/step.h"

namespace switchyard::engine {

/// Picks of one request, [MoE layer][expert] in one row; see Statistics::slot.
using PickCounts = std::vector<uint32_t>;

/// What one step's routing looked like, for metrics.
struct StepRouting {
  double worst_imbalance = 0;  ///< the largest over the layers; 0 when nothing was routed
  double mean_experts = 0;     ///< experts touched, mean over the layers
};

class Statistics final : public model::RoutingObserver {
 public:
  /// experts[i]: E of MoE layer i. capacity_factor of their routers; 0: dropless.
  explicit Statistics(std::vector<int> experts, float capacity_factor = 0);

  /// Step: who owns which tokens. seq_offset [B + 1], picks [B]: where to count each sequence's
  /// picks (an empty one counts nothing), but for those of its first skip [B] tokens, which were counted when they were computed
  /// for the first time.
  void begin_step(std::span<const int32_t> seq_offset, std::span<PickCounts* const> picks,
                  std::span<const int32_t> skip);
  void on_routing(int moe_layer, const Routing& routing) override;
  bool wants_picks() const override { return counts_picks_; }
  StepRouting end_step(double seconds);

  void add_request(uint64_t prompt_tokens, uint64_t cached_tokens) noexcept {
    bump(prompt_tokens_, prompt_tokens);
    bump(cached_tokens_, cached_tokens);
  }
  void add_output(uint64_t tokens) noexcept { bump(output_tokens_, tokens); }
  void add_preemptions(uint64_t count) noexcept { bump(preemptions_, count); }

  int num_layers() const noexcept { return static_cast<int>(experts_.size()); }
  int experts(int moe_layer) const { return experts_[static_cast<size_t>(moe_layer)]; }
  /// Where an expert's count lies in PickCounts, and how many there are.
  size_t slot(int moe_layer, int expert) const {
    return first_slot_[static_cast<size_t>(moe_layer)] + static_cast<size_t>(expert);
  }
  size_t num_slots() const noexcept { return first_slot_.back(); }
  RequestMoe request_moe(const PickCounts& picks) const;

  /// Layer facts of the last steps, for gauges: an exponential mean over about 32 steps.
  double recent_imbalance(int moe_layer) const;
  uint64_t layer_picks(int moe_layer) const;
  uint64_t expert_picks(int moe_layer, int expert) const;  ///< since open, whatever was reset
  uint64_t layer_dropped(int moe_layer) const;
  uint64_t layer_unrouted(int moe_layer) const;
  uint64_t unusable_rows() const;

  /// Sums since the last reset; phase_s stays empty. Any thread.
  EngineStats read() const;
  void reset();

 private:
  struct Layer {
    std::atomic<double> imbalance_sum{0}, touched_sum{0}, recent_imbalance{0};
    std::atomic<uint64_t> steps{0}, picks{0}, dropped{0}, unrouted{0};
  };
  /// A copy of all sums at one moment.
  struct Sums {
    uint64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, preemptions = 0;
    uint64_t unrouted = 0, unusable = 0;
    double step_s = 0;
    std::vector<uint64_t> load;                         // [slots]
    std::vector<uint64_t> dropped;                      // [MoE layers]
    std::vector<double> imbalance, touched, num_steps;  // [MoE layers]
  };

  /// One writer: a load and a store are enough.
  template <class T>
  static void bump(std::atomic<T>& sum, T amount) noexcept {
    sum.store(sum.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void count_picks(int moe_layer, const int32_t* expert, int64_t top_k);
  void add_demand(int moe_layer, std::span<const int32_t> demand);
  Sums sums() const;

  std::vector<int> experts_;        // [MoE layers]
  std::vector<size_t> first_slot_;  // [MoE layers + 1]
  std::vector<Layer> layers_;
  DropWatch drops_;
  std::vector<std::atomic<uint64_t>> load_;  // [slots]
  std::atomic<uint64_t> steps_{0}, prompt_tokens_{0}, output_tokens_{0}, preemptions_{0};
  std::atomic<uint64_t> cached_tokens_{0}, unusable_{0};
  std::atomic<double> step_s_{0};

  // Of the step that runs.
  std::span<const int32_t> seq_offset_;
  std::span<PickCounts* const> picks_;
  std::span<const int32_t> skip_;
  bool counts_picks_ = false;  // of any sequence
  StepRouting step_;
  int step_layers_ = 0;

  mutable std::mutex base_mutex_;  // readers only
  Sums base_;                      // the sums at the last reset
};

}  // namespace switchyard::engine
