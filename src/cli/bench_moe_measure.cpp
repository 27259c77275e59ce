// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_measure.h"

#include <algorithm>
#include <cmath>

namespace switchyard::cli {
namespace {

constexpr int kMinRuns = 5, kMaxRuns = 200;
constexpr double kRowSeconds = 0.4;

double quantile(const std::vector<double>& sorted, double at) {
  return sorted[static_cast<size_t>(std::lround(at * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

bool MoeBenchOptions::runs(moe::Execution execution) const noexcept {
  return std::find(executions.begin(), executions.end(), execution) != executions.end();
}

int MoeBenchOptions::most_tokens() const noexcept {
  return *std::max_element(tokens.begin(), tokens.end());
}

double median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Result<std::vector<moe::Traffic>> open_moe_traffic(const MoeShape& shape,
                                                   const MoeBenchOptions& options) {
  std::vector<moe::Traffic> all;
  for (const std::string& text : options.routings) {
    SWITCHYARD_ASSIGN(moe::Traffic traffic,
                      moe::Traffic::open(text, shape.num_experts, shape.top_k, options.seed));
    all.push_back(std::move(traffic));
  }
  return all;
}

Result<std::vector<MoeDraw>> make_moe_draws(const MoeShape& shape, const moe::Traffic& traffic,
                                            int layers, int tokens, double factor,
                                            const Stream& stream) {
  std::vector<MoeDraw> draws;
  for (int set = 0; set < kMoeDrawSets; ++set)
    for (int l = 0; l < layers; ++l) {
      SWITCHYARD_ASSIGN(MoeDraw draw, MoeDraw::make(shape, traffic, l, tokens,
                                                    static_cast<uint32_t>(set), factor, stream));
      draws.push_back(std::move(draw));
    }
  return draws;
}

Result<int> plan_moe_layers(const MoeShape& shape, const MoeBenchOptions& options,
                            const std::vector<moe::Traffic>& traffic, int64_t cache_bytes,
                            const Stream& stream) {
  constexpr int64_t kCacheFactor = 4;
  const int fewest = *std::min_element(options.tokens.begin(), options.tokens.end());
  if (options.layers > 0) return options.layers;
  int layers = 1;
  for (const moe::Traffic& each : traffic) {
    SWITCHYARD_ASSIGN(const MoeDraw draw, MoeDraw::make(shape, each, 0, fewest, 0, 0, stream));
    const int64_t bytes =
        std::max(draw.touched(), 1) * shape.expert_parameters() * dtype_bytes(options.dtype);
    const int64_t wanted = (kCacheFactor * cache_bytes + bytes - 1) / bytes;
    layers = std::max(layers, static_cast<int>(std::min<int64_t>(wanted, shape.layers)));
  }
  return layers;
}

std::vector<MoeItem> moe_items(const MoeBenchOptions& options,
                               const std::vector<std::vector<MoeDraw>>& draws) {
  std::vector<MoeItem> items;
  for (size_t c = 0; c < draws.size(); ++c)
    for (const moe::Execution execution : options.executions)
      items.push_back({execution, options.capacities[c], &draws[c], {}});
  return items;
}

Status measure_in_turn(std::vector<MoeItem>& items, const MoeBenchOptions& options, int layers,
                       const std::function<Result<double>(MoeItem&, int run)>& time_pass) {
  for (MoeItem& item : items) SWITCHYARD_TRY(time_pass(item, 0));
  double seconds = 0;
  const double enough = kRowSeconds * static_cast<double>(items.size());
  const int least = options.repeats > 0 ? options.repeats : kMinRuns;
  const int most = options.repeats > 0 ? options.repeats : kMaxRuns;
  for (int run = 0; run < least || (run < most && seconds < enough); ++run)
    for (MoeItem& item : items) {
      SWITCHYARD_ASSIGN(const double time_us, time_pass(item, run));
      item.times_us.push_back(time_us);
      seconds += time_us * 1e-6 * layers;
    }
  for (MoeItem& item : items) std::sort(item.times_us.begin(), item.times_us.end());
  return {};
}

MoeRow make_moe_row(const MoeShape& shape, const MoeBenchOptions& options, const MoeItem& item,
                    std::string_view routing, int tokens, const MoePeaks& peaks) {
  const MoeLoad load = mean_load(*item.draws);
  const auto parameters = static_cast<double>(shape.expert_parameters());
  const double bytes = load.touched * parameters * dtype_bytes(options.dtype);
  const double flops = 2 * parameters * load.kept_picks;
  MoeRow row;
  row.shape = shape.name;
  row.tokens = tokens;
  row.routing = routing;
  row.dtype = dtype_name(options.dtype);
  row.kernel = moe::execution_name(item.execution);
  row.time_us = median(item.times_us);
  row.floor_us =
      1e-3 * std::max(bytes / peaks.read_gbps, peaks.gflops > 0 ? flops / peaks.gflops : 0.0);
  row.experts_touched = load.touched;
  row.imbalance = load.imbalance;
  row.drop_rate = load.picks > 0 ? 1 - load.kept_picks / load.picks : 0;
  row.gbps = bytes / row.time_us * 1e-3;
  row.gflops = flops / row.time_us * 1e-3;
  row.capacity = item.factor;
  row.time_spread = (quantile(item.times_us, 0.75) - quantile(item.times_us, 0.25)) / row.time_us;
  row.best_us = item.times_us.front();
  row.rows = load.kept_picks;
  if (item.execution == moe::Execution::padded) row.rows = shape.num_slots() * load.mean_capacity;
  row.runs = static_cast<int>(item.times_us.size());
  return row;
}

}  // namespace switchyard::cli
