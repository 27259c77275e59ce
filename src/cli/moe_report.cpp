// SPDX-License-Identifier: Apache-2.0
#include "cli/moe_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace switchyard::cli {
namespace {

constexpr size_t kTopExperts = 4;
constexpr int kBarColumns = 16;

/// The busiest experts of a layer, busiest first; of equal ones the lower number first.
std::vector<size_t> busiest(const std::vector<uint64_t>& load) {
  std::vector<size_t> order(load.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t count = std::min(kTopExperts, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](size_t a, size_t b) { return load[a] != load[b] ? load[a] > load[b] : a < b; });
  order.resize(count);
  return order;
}

std::string busiest_text(const std::vector<uint64_t>& load, uint64_t total) {
  std::string text;
  for (const size_t expert : busiest(load)) {
    if (load[expert] == 0) break;
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", expert,
                        100.0 * static_cast<double>(load[expert]) / static_cast<double>(total));
  }
  return text;
}

/// The picks of a layer over the whole run.
struct LayerLoad {
  explicit LayerLoad(const std::vector<uint64_t>& load) {
    uint64_t hottest = 0;
    for (const uint64_t picks : load) {
      total += picks;
      hottest = std::max(hottest, picks);
      touched += picks > 0 ? 1 : 0;
    }
    if (total > 0)
      imbalance = static_cast<double>(hottest) * static_cast<double>(load.size()) /
                  static_cast<double>(total);
  }
  uint64_t total = 0;
  int touched = 0;
  double imbalance = 0;
};

std::string dropped_text(uint64_t dropped, uint64_t picks) {
  if (picks == 0) return "";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(dropped) / static_cast<double>(picks));
}

/// What the table has no room for, when there is something to say.
std::string losses_text(const EngineStats& stats) {
  std::string text;
  if (!stats.dropped.empty())
    text += "imbalance, touched and shares count the picks before the drop\n";
  if (stats.unrouted_tokens > 0)
    text +=
        fmt::format("{} times a token lost all its experts in a layer\n", stats.unrouted_tokens);
  if (stats.unusable_rows > 0)
    text += fmt::format("{} times a router met NaN or infinity\n", stats.unusable_rows);
  return text;
}

/// The picks of one prompt in one layer as shares of all its picks there.
std::vector<double> shares(const PromptExperts& prompt, size_t layer) {
  const std::vector<uint32_t>& picks = prompt.moe->picks[layer];
  const double total = std::max(std::accumulate(picks.begin(), picks.end(), 0.0), 1.0);
  std::vector<double> shares;
  shares.reserve(picks.size());
  for (const uint32_t count : picks) shares.push_back(count / total);
  return shares;
}

/// How far apart the prompts are in a layer: the sum of all differences of shares.
double spread(const std::vector<PromptExperts>& prompts, size_t layer) {
  double spread = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<double> a = shares(prompts[i], layer);
    for (size_t j = 0; j < i; ++j) {
      const std::vector<double> b = shares(prompts[j], layer);
      for (size_t e = 0; e < a.size(); ++e) spread += std::abs(a[e] - b[e]);
    }
  }
  return spread;
}

/// One character for each expert, higher where it had more picks; neighbours share one when there are too many.
std::string strip(const std::vector<double>& shares) {
  constexpr size_t kMostColumns = 64;
  constexpr const char* kHeights[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                      "\u2585", "\u2586", "\u2587", "\u2588"};
  const size_t each = (shares.size() + kMostColumns - 1) / kMostColumns;
  std::vector<double> columns((shares.size() + each - 1) / each);
  for (size_t e = 0; e < shares.size(); ++e) columns[e / each] += shares[e];
  const double most = *std::max_element(columns.begin(), columns.end());
  std::string out;
  for (const double column : columns)
    out += kHeights[most > 0 ? static_cast<size_t>(std::ceil(8 * column / most)) : 0];
  return out;
}

/// A phase of the report: the zones that it sums, by the names of zone_name().
struct Phase {
  const char* title;
  std::string_view zone;
};
constexpr Phase kPhases[] = {
    {"router", "router"},         {"sort", "sort"},
    {"gather", "gather"},         {"gemm up", "gemm_up"},
    {"activation", "activation"}, {"gemm down", "gemm_down"},
    {"combine", "combine"},       {"shared expert", "shared_expert"},
    {"attention", "attention"},
};

double seconds_of(const EngineStats& stats, std::string_view zone) {
  for (const auto& [name, seconds] : stats.phase_s)
    if (name == zone) return seconds;
  return 0;
}

/// What "other" consists of: zones that are no row of their own.
std::string other_text(const EngineStats& stats) {
  std::string text;
  for (const auto& [name, seconds] : stats.phase_s) {
    const auto shown = [&zone = name](const Phase& phase) { return phase.zone == zone; };
    if (std::any_of(std::begin(kPhases), std::end(kPhases), shown)) continue;
    const double share = 100 * seconds / stats.step_s;
    if (share >= 0.05) text += fmt::format("{}{} {:.1f}%", text.empty() ? "" : ", ", name, share);
  }
  return text;
}

}  // namespace

std::string expert_report(const EngineStats& stats, const Look& look) {
  if (stats.load.empty() || stats.steps == 0) return "";
  std::vector<Column> columns{{"MoE layer", Align::right}, {"experts", Align::right},
                              {"touched", Align::right},   {"imbalance", Align::right},
                              {"per step:", Align::left},  {"touched", Align::right},
                              {"imbalance", Align::right}};
  if (!stats.dropped.empty()) columns.emplace_back("dropped", Align::right);
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  columns.emplace_back("busiest experts (share of picks)", Align::left);
  Table table(columns);
  double most = 0;
  for (const std::vector<uint64_t>& load : stats.load)
    most = std::max(most, LayerLoad(load).imbalance);
  for (size_t i = 0; i < stats.load.size(); ++i) {
    const LayerLoad layer(stats.load[i]);
    std::vector<std::string> cells{std::to_string(i),
                                   std::to_string(stats.load[i].size()),
                                   std::to_string(layer.touched),
                                   fmt::format("{:.2f}", layer.imbalance),
                                   "",
                                   fmt::format("{:.1f}", stats.experts_touched[i]),
                                   fmt::format("{:.2f}", stats.imbalance[i])};
    if (!stats.dropped.empty()) cells.push_back(dropped_text(stats.dropped[i], layer.total));
    if (look.terminal) cells.push_back(bar(most > 0 ? layer.imbalance / most : 0, kBarColumns));
    cells.push_back(busiest_text(stats.load[i], layer.total));
    table.add(std::move(cells));
  }
  return table.text(look) +
         fmt::format(
             "imbalance: picks of the hottest expert over the mean; per step: mean of {} "
             "steps\n",
             stats.steps) +
         losses_text(stats);
}

std::string prompt_report(const std::vector<PromptExperts>& prompts, const Look& look) {
  if (prompts.size() < 2 || prompts.front().moe->picks.empty()) return "";
  size_t layer = 0;
  for (size_t i = 1; i < prompts.front().moe->picks.size(); ++i)
    if (spread(prompts, i) > spread(prompts, layer)) layer = i;
  std::vector<Column> columns;
  if (look.terminal)
    columns.emplace_back(fmt::format("experts of layer {}", layer), Align::left, Style::cyan);
  columns.emplace_back("busiest experts (share of picks)", Align::left);
  columns.emplace_back("prompt", Align::left);
  Table table(columns);
  for (const PromptExperts& prompt : prompts) {
    const std::vector<uint32_t>& picks = prompt.moe->picks[layer];
    const std::vector<uint64_t> load(picks.begin(), picks.end());
    std::vector<std::string> cells;
    if (look.terminal) cells.push_back(strip(shares(prompt, layer)));
    cells.push_back(busiest_text(load, LayerLoad(load).total));
    cells.push_back(clip(prompt.prompt, 40));
    table.add(std::move(cells));
  }
  return fmt::format("MoE layer {}, where the prompts differ most\n", layer) + table.text(look);
}

std::string phase_report(const EngineStats& stats, const Look& look) {
  if (stats.phase_s.empty() || stats.step_s <= 0) return "";
  std::vector<Column> columns{
      {"phase", Align::left}, {"time", Align::right}, {"share", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::green);
  columns.emplace_back("", Align::left);
  Table table(columns);
  const auto add = [&](const char* title, double seconds, std::string note) {
    const double share = seconds / stats.step_s;
    std::vector<std::string> cells{title, time_text(seconds), fmt::format("{:.1f}%", 100 * share)};
    if (look.terminal) cells.push_back(bar(share, 2 * kBarColumns));
    cells.push_back(std::move(note));
    table.add(std::move(cells));
  };
  double shown = 0;
  for (const Phase& phase : kPhases) {
    const double seconds = seconds_of(stats, phase.zone);
    shown += seconds;
    add(phase.title, seconds, "");
  }
  add("other", std::max(stats.step_s - shown, 0.0), other_text(stats));
  return table.text(look) +
         fmt::format("{} steps, {} in all\n", stats.steps, time_text(stats.step_s));
}

std::string layer_phase_report(const EngineStats& stats, const Look& look) {
  if (stats.layer_phase_s.empty() || stats.steps == 0) return "";
  // Phases that no layer has (the embedding, say) get no column.
  std::vector<size_t> shown;
  for (size_t i = 0; i < stats.phase_s.size(); ++i)
    if (std::any_of(stats.layer_phase_s.begin(), stats.layer_phase_s.end(),
                    [i](const std::vector<double>& layer) { return layer[i] > 0; }))
      shown.push_back(i);
  std::vector<Column> columns{{"layer", Align::right}};
  for (const size_t i : shown) columns.emplace_back(stats.phase_s[i].first, Align::right);
  columns.emplace_back("sum", Align::right);
  if (look.terminal) columns.emplace_back("", Align::left, Style::green);
  Table table(columns);
  const auto sum_of = [](const std::vector<double>& layer) {
    return std::accumulate(layer.begin(), layer.end(), 0.0);
  };
  double most = 0;
  for (const std::vector<double>& layer : stats.layer_phase_s) most = std::max(most, sum_of(layer));
  const double to_ms = 1e3 / static_cast<double>(stats.steps);
  for (size_t l = 0; l < stats.layer_phase_s.size(); ++l) {
    const std::vector<double>& layer = stats.layer_phase_s[l];
    std::vector<std::string> cells{std::to_string(l)};
    for (const size_t i : shown) cells.push_back(fmt::format("{:.3f}", layer[i] * to_ms));
    cells.push_back(fmt::format("{:.3f}", sum_of(layer) * to_ms));
    if (look.terminal) cells.push_back(bar(most > 0 ? sum_of(layer) / most : 0, kBarColumns));
    table.add(std::move(cells));
  }
  return table.text(look) + fmt::format("milliseconds a step, mean of {} steps\n", stats.steps);
}

}  // namespace switchyard::cli
