// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/measures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/trace/closed_forms.h"

namespace switchyard::moe {
namespace {

template <class T>
uint64_t sum_of(std::span<const T> load) {
  return std::accumulate(load.begin(), load.end(), uint64_t{0});
}

template <class T>
double hottest_over_mean(std::span<const T> load) {
  const uint64_t total = sum_of(load);
  if (total == 0) return 0;
  const auto hottest = static_cast<double>(*std::max_element(load.begin(), load.end()));
  return hottest * static_cast<double>(load.size()) / static_cast<double>(total);
}

std::vector<double> shares(std::span<const uint64_t> load) {
  const auto total = static_cast<double>(std::max<uint64_t>(sum_of(load), 1));
  std::vector<double> shares;
  for (const uint64_t picks : load) shares.push_back(static_cast<double>(picks) / total);
  return shares;
}

/// The value below which a share q of the sorted values lies (nearest rank).
double quantile(const std::vector<double>& sorted, double q) {
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Values of the steps of one stage, over all layers.
struct StageValues {
  std::vector<double> imbalance, touched;
};

StageMeasures finish_stage(StageMeasures stage, const StageValues& values) {
  stage.imbalance = spread_of(values.imbalance);
  stage.touched = mean_of(values.touched);
  return stage;
}

void finish_layer(LayerMeasures& layer, double touched_sum, int top_k) {
  const size_t steps = layer.imbalances.size();
  layer.imbalance = spread_of(layer.imbalances);
  layer.touched = steps > 0 ? touched_sum / static_cast<double>(steps) : 0;
  layer.picks = sum_of<uint64_t>(layer.load);
  layer.entropy = entropy(layer.load);
  layer.floor = imbalance_floor(inclusion(layer.load, top_k));
}

}  // namespace

double imbalance(std::span<const uint64_t> load) { return hottest_over_mean(load); }
double imbalance(std::span<const uint32_t> load) { return hottest_over_mean(load); }

int touched(std::span<const uint32_t> load) {
  return static_cast<int>(load.size() -
                          static_cast<size_t>(std::count(load.begin(), load.end(), 0)));
}

double entropy(std::span<const uint64_t> load) {
  if (load.size() < 2) return load.empty() ? 0 : 1;
  double bits = 0;
  for (const double p : shares(load))
    if (p > 0) bits -= p * std::log2(p);
  return bits / std::log2(static_cast<double>(load.size()));
}

double distance(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  const std::vector<double> p = shares(a), q = shares(b);
  double sum = 0;
  for (size_t e = 0; e < p.size(); ++e) sum += std::abs(p[e] - q[e]);
  return sum / 2;
}

double distance_noise(std::span<const uint64_t> pooled, int top_k, double tokens_a,
                      double tokens_b) {
  // The difference of two shares has variance pi (1 - pi) (1/a + 1/b) / K^2, and |normal| has the
  // mean sqrt(2 / 3.14...) of its deviation.
  constexpr double kMeanOfAbsolute = 0.7978845608028654;
  if (tokens_a <= 0 || tokens_b <= 0) return 0;
  double sum = 0;
  for (const double pi : inclusion(pooled, top_k))
    sum += std::sqrt(std::max(pi * (1 - pi), 0.0) * (1 / tokens_a + 1 / tokens_b));
  return kMeanOfAbsolute * sum / (2 * top_k);
}

std::vector<double> inclusion(std::span<const uint64_t> load, int top_k) {
  std::vector<double> pi = shares(load);
  for (double& p : pi) p *= top_k;
  return pi;
}

void add_load(LoadCounts& sum, std::span<const uint32_t> load) {
  sum.resize(load.size());
  for (size_t e = 0; e < load.size(); ++e) sum[e] += load[e];
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {mean_of(values), quantile(values, 0.5), quantile(values, 0.95), values.back()};
}

TraceMeasures measure(const TraceView& trace) {
  const auto num_layers = static_cast<size_t>(trace.header().num_layers);
  TraceMeasures measures;
  measures.layers.resize(num_layers);
  std::vector<double> touched_sum(num_layers);
  StageValues values[kNumTraceStages], all;
  for (LayerMeasures& layer : measures.layers)
    layer.load.resize(static_cast<size_t>(trace.header().num_experts));
  for (int64_t i = 0; i < trace.num_steps(); ++i) {
    const TraceStep step = trace.step(i);
    const auto stage = static_cast<size_t>(step.stage());
    for (StageMeasures* of : {&measures.stages[stage], &measures.all}) {
      ++of->steps;
      of->tokens += step.num_tokens();
    }
    for (size_t l = 0; l < num_layers; ++l) {
      LayerMeasures& layer = measures.layers[l];
      const std::span<const uint32_t> demand = step.demand(static_cast<int>(l));
      add_load(layer.load, demand);
      layer.dropped += step.dropped(static_cast<int>(l));
      const double value = imbalance(demand);
      if (value == 0) continue;
      const int count = touched(demand);
      layer.imbalances.push_back(value);
      touched_sum[l] += count;
      for (StageValues* of : {&values[stage], &all}) {
        of->imbalance.push_back(value);
        of->touched.push_back(count);
      }
    }
  }
  for (size_t l = 0; l < num_layers; ++l)
    finish_layer(measures.layers[l], touched_sum[l], trace.header().top_k);
  for (size_t s = 0; s < kNumTraceStages; ++s)
    measures.stages[s] = finish_stage(measures.stages[s], values[s]);
  measures.all = finish_stage(measures.all, all);
  return measures;
}

namespace {

/// The distances of one layer's windows.
void add_distances(Drift& drift, const std::vector<LoadCounts>& windows, int top_k) {
  double sum = 0, noise = 0;
  for (size_t w = 1; w < windows.size(); ++w) {
    LoadCounts pooled = windows[w];
    for (size_t e = 0; e < pooled.size(); ++e) pooled[e] += windows[w - 1][e];
    sum += distance(windows[w - 1], windows[w]);
    noise += distance_noise(pooled, top_k, static_cast<double>(drift.window_tokens[w - 1]),
                            static_cast<double>(drift.window_tokens[w]));
  }
  const double pairs = windows.size() > 1 ? static_cast<double>(windows.size() - 1) : 1;
  drift.neighbours.push_back(sum / pairs);
  drift.noise.push_back(noise / pairs);
  drift.ends.push_back(windows.size() > 1 ? distance(windows.front(), windows.back()) : 0);
}

}  // namespace

Drift measure_drift(const TraceView& trace, int num_windows) {
  const int num_layers = trace.header().num_layers;
  Drift drift;
  drift.load.resize(static_cast<size_t>(num_layers));
  int64_t seen = 0, last_window = -1;
  for (int64_t i = 0; i < trace.num_steps(); ++i) {
    const TraceStep step = trace.step(i);
    // A step belongs to the window in which it begins.
    const int64_t window = seen * num_windows / trace.num_tokens();
    if (window != last_window) {
      drift.window_tokens.push_back(0);
      for (auto& layer : drift.load) layer.emplace_back();
    }
    last_window = window;
    drift.window_tokens.back() += step.num_tokens();
    for (int l = 0; l < num_layers; ++l)
      add_load(drift.load[static_cast<size_t>(l)].back(), step.demand(l));
    seen += step.num_tokens();
  }
  for (const std::vector<LoadCounts>& windows : drift.load)
    add_distances(drift, windows, trace.header().top_k);
  return drift;
}

}  // namespace switchyard::moe
