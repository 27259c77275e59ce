// SPDX-License-Identifier: Apache-2.0
// Measures of a routing trace. docs/metrics.md defines each one; the names are the same.
//
// Imbalance is taken per layer and step and then aggregated: layers are never summed first, because
// two layers with different hot experts would look even together.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "moe/trace/reader.h"

namespace switchyard::moe {

using LoadCounts = std::vector<uint64_t>;  ///< [E]

/// Picks of the hottest expert over the mean; 0 when there are none.
double imbalance(std::span<const uint64_t> load);
double imbalance(std::span<const uint32_t> load);
int touched(std::span<const uint32_t> load);
/// Of shares p: -sum p log2 p / log2 E. 1 is even, 0 a single expert.
double entropy(std::span<const uint64_t> load);
/// Half the sum of |p - q| over the shares of two loads: 0 the same, 1 disjoint.
double distance(std::span<const uint64_t> a, std::span<const uint64_t> b);
/// What distance() gives in the mean between two samples of one popularity, when tokens are
/// independent: the noise to compare it with. Normal approximation.
double distance_noise(std::span<const uint64_t> pooled, int top_k, double tokens_a,
                      double tokens_b);
/// pi [E] of closed_forms.h: the chance that a token picks each expert.
std::vector<double> inclusion(std::span<const uint64_t> load, int top_k);
void add_load(LoadCounts& sum, std::span<const uint32_t> load);

/// Of a set of values.
struct Spread {
  double mean = 0, p50 = 0, p95 = 0, max = 0;
};
Spread spread_of(std::vector<double> values);

struct LayerMeasures {
  LoadCounts load;  ///< [E] picks over the trace, before drops
  uint64_t picks = 0, dropped = 0;
  std::vector<double> imbalances;  ///< of each step with picks
  Spread imbalance;                ///< of these
  double touched = 0;              ///< experts with work, mean over the steps
  double entropy = 0, floor = 0;   ///< of the load over the whole trace
};

/// Steps of one stage.
struct StageMeasures {
  int64_t steps = 0, tokens = 0;
  Spread imbalance;    ///< over steps and layers, each its own value
  double touched = 0;  ///< mean over steps and layers
};

struct TraceMeasures {
  std::vector<LayerMeasures> layers;
  StageMeasures stages[kNumTraceStages], all;
};

TraceMeasures measure(const TraceView& trace);

/// Popularity in consecutive windows of about equally many tokens, at least one step each.
struct Drift {
  std::vector<int64_t> window_tokens;           ///< [W]
  std::vector<std::vector<LoadCounts>> load;    ///< [layer][W]
  std::vector<double> neighbours, ends, noise;  ///< [layer] distances; noise is that of neighbours
};
Drift measure_drift(const TraceView& trace, int num_windows);

}  // namespace switchyard::moe
