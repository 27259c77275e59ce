// SPDX-License-Identifier: Apache-2.0
#include "cli/load_report.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "moe/trace/measures.h"

namespace switchyard::cli {
namespace {

double drift_of(const moe::ExpertLoad& load, size_t layer) {
  double sum = 0;
  int pairs = 0;
  for (size_t w = 1; w < load.windows.size(); ++w) {
    const auto& before = load.windows[w - 1].counts[layer];
    const auto& now = load.windows[w].counts[layer];
    const auto empty = [](const std::vector<uint64_t>& counts) {
      return std::all_of(counts.begin(), counts.end(), [](uint64_t count) { return count == 0; });
    };
    if (empty(before) || empty(now)) continue;
    sum += moe::distance(before, now);
    ++pairs;
  }
  return pairs == 0 ? 0 : sum / pairs;
}

LoadReport::Layer layer_of(const moe::ExpertLoad& load, size_t l) {
  const std::vector<uint64_t>& counts = load.counts[l];
  LoadReport::Layer layer;
  const uint64_t picks = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const auto hottest = std::max_element(counts.begin(), counts.end());
  layer.hottest = static_cast<int>(hottest - counts.begin());
  layer.idle = static_cast<int>(std::count(counts.begin(), counts.end(), uint64_t{0}));
  layer.floor = moe::imbalance(counts);
  layer.drift = drift_of(load, l);
  if (picks == 0) return layer;
  layer.entropy = moe::entropy(counts);
  layer.hottest_share = static_cast<double>(*hottest) / static_cast<double>(picks);
  layer.dropped_share = static_cast<double>(load.dropped[l]) / static_cast<double>(picks);
  return layer;
}

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

}  // namespace

LoadReport make_load_report(std::string path, moe::ExpertLoad load) {
  LoadReport report;
  report.path = std::move(path);
  for (size_t l = 0; l < load.counts.size(); ++l) report.layers.push_back(layer_of(load, l));
  report.load = std::move(load);
  return report;
}

std::string load_report_text(const LoadReport& report, const Look& look) {
  const moe::ExpertLoad& load = report.load;
  std::string text = fmt::format(
      "{}: {} ({}), {} MoE layers of {} experts, {} for each token\n"
      "{} tokens in {} steps ({}), in {} windows\n\n",
      printable(report.path), printable(load.header.model), printable(load.model_hash),
      load.header.num_layers, load.header.num_experts, load.header.top_k, count_text(load.tokens),
      count_text(load.steps), printable(load.stage), load.windows.size());
  std::vector<Column> columns{{"layer", Align::right}, {"floor", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  for (const char* title : {"entropy", "hottest", "its share", "idle", "dropped", "drift"})
    columns.emplace_back(title, Align::right);
  Table table(columns);
  double most = 1;
  for (const LoadReport::Layer& layer : report.layers) most = std::max(most, layer.floor);
  for (size_t l = 0; l < report.layers.size(); ++l) {
    const LoadReport::Layer& layer = report.layers[l];
    std::vector<std::string> cells{std::to_string(l), fmt::format("{:.2f}", layer.floor)};
    if (look.terminal) cells.push_back(bar(layer.floor / most, 16));
    for (std::string& cell : std::vector<std::string>{
             fmt::format("{:.3f}", layer.entropy), std::to_string(layer.hottest),
             percent(layer.hottest_share), std::to_string(layer.idle), percent(layer.dropped_share),
             fmt::format("{:.3f}", layer.drift)})
      cells.push_back(std::move(cell));
    table.add(std::move(cells));
  }
  return text + table.text(look) +
         "floor: hottest expert over the mean, of the whole load; single steps are less even. "
         "drift: "
         "distance of neighbouring windows\n";
}

void write_load_report(JsonWriter& json, const LoadReport& report) {
  const moe::ExpertLoad& load = report.load;
  json.begin_object().field("expert_load", report.path).field("model", load.header.model);
  json.field("model_hash", load.model_hash).field("stage", load.stage);
  json.field("num_moe_layers", load.header.num_layers);
  json.field("num_experts", load.header.num_experts).field("top_k", load.header.top_k);
  json.field("steps", load.steps).field("tokens", load.tokens);
  json.field("windows", static_cast<int64_t>(load.windows.size())).key("layers").begin_array();
  for (size_t l = 0; l < report.layers.size(); ++l) {
    const LoadReport::Layer& layer = report.layers[l];
    json.begin_object().field("floor", layer.floor).field("entropy", layer.entropy);
    json.field("hottest", layer.hottest).field("hottest_share", layer.hottest_share);
    json.field("idle", layer.idle).field("dropped", load.dropped[l]).field("drift", layer.drift);
    json.key("load").begin_array();
    for (const uint64_t picks : load.counts[l]) json.unsigned_integer(picks);
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

}  // namespace switchyard::cli
