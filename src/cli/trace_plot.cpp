// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_plot.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "cli/charts.h"
#include "moe/trace/coactivation.h"

namespace switchyard::cli {
namespace {

constexpr double kWidth = 1000, kHeight = 280, kGap = 24, kHeading = 56;

/// One chart of the figure: it fills its box, over the whole width or half of it.
struct Panel {
  bool whole_width = false;
  std::function<void(Svg&, const Box&)> draw;
};

/// Picks of each expert over the mean of the layer.
std::vector<double> over_mean(const moe::LoadCounts& load) {
  std::vector<double> cells = moe::inclusion(load, 1);
  for (double& cell : cells) cell *= static_cast<double>(load.size());
  return cells;
}

Panel load_map(const TraceReport& report) {
  HeatMap map{"Load of every expert, over the whole trace",
              "expert",
              "MoE layer",
              "picks over the mean",
              {},
              {}};
  for (const moe::LayerMeasures& layer : report.measures.layers)
    map.rows.push_back(over_mean(layer.load));
  return {true, [map](Svg& svg, const Box& box) { draw_heat_map(svg, box, map); }};
}

/// How often each imbalance occurred, by kind of step.
Panel imbalance_bars(const moe::TraceView& trace) {
  constexpr double kBounds[] = {1.25, 1.5, 2, 2.5, 3, 4, 6, 8, 12, 20};
  BarChart chart{"Imbalance of each layer and step",
                 "hottest expert over the mean",
                 "share of layer steps",
                 {},
                 {}};
  for (const double bound : kBounds) chart.categories.push_back(fmt::format("\u2264{:g}", bound));
  chart.categories.emplace_back("more");
  std::vector<std::vector<double>> counts(moe::kNumTraceStages,
                                          std::vector<double>(chart.categories.size()));
  std::vector<double> totals(moe::kNumTraceStages);
  for (int64_t i = 0; i < trace.num_steps(); ++i) {
    const moe::TraceStep step = trace.step(i);
    const auto stage = static_cast<size_t>(step.stage());
    for (int layer = 0; layer < trace.header().num_layers; ++layer) {
      const double value = moe::imbalance(step.demand(layer));
      if (value == 0) continue;
      const auto at = std::lower_bound(std::begin(kBounds), std::end(kBounds), value);
      ++counts[stage][static_cast<size_t>(at - std::begin(kBounds))];
      ++totals[stage];
    }
  }
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    if (totals[stage] == 0) continue;
    for (double& count : counts[stage]) count /= totals[stage];
    chart.series.push_back(
        {moe::trace_stage_name(static_cast<moe::TraceStage>(stage)), counts[stage], false});
  }
  return {false, [chart](Svg& svg, const Box& box) { draw_bars(svg, box, chart); }};
}

Panel batch_curves(const TraceReport& report) {
  CurveChart chart{"Imbalance by batch size",
                   "tokens of the batch",
                   "hottest over mean",
                   {},
                   {{"across requests", {}, false},
                    {"along a request", {}, false},
                    {"expected", {}, true},
                    {"uniform", {}, true}},
                   1};
  for (const BatchRow& row : report.batches) {
    chart.positions.push_back(std::to_string(row.batch));
    chart.series[0].values.push_back(row.across);
    chart.series[1].values.push_back(row.along);
    chart.series[2].values.push_back(row.expected);
    chart.series[3].values.push_back(row.uniform);
  }
  return {false, [chart](Svg& svg, const Box& box) { draw_curves(svg, box, chart); }};
}

Panel topic_map(const TraceReport& report, size_t layer) {
  HeatMap map{fmt::format("Load by topic, MoE layer {}", layer),
              "expert",
              "",
              "picks over the mean",
              {},
              {}};
  for (const moe::TopicMeasures& topic : report.topics.topics) {
    map.rows.push_back(over_mean(topic.load[layer]));
    map.row_names.push_back(clip(topic.name, 24));
  }
  return {true, [map](Svg& svg, const Box& box) { draw_heat_map(svg, box, map); }};
}

Panel topic_layers(const TraceReport& report) {
  HeatMap map{"Imbalance of each topic's load", "MoE layer", "", "hottest over mean", {}, {}};
  for (const moe::TopicMeasures& topic : report.topics.topics) {
    map.rows.push_back(topic.imbalance);
    map.row_names.push_back(clip(topic.name, 24));
  }
  map.rows.push_back(report.topics.mixed_imbalance);
  map.row_names.emplace_back("evenly mixed");
  return {false, [map](Svg& svg, const Box& box) { draw_heat_map(svg, box, map); }};
}

Panel drift_map(const TraceReport& report, size_t layer) {
  HeatMap map{fmt::format("Load over time, MoE layer {}", layer),
              "expert",
              "window of the trace",
              "picks over the mean",
              {},
              {}};
  for (const moe::LoadCounts& window : report.drift.load[layer])
    map.rows.push_back(over_mean(window));
  return {false, [map](Svg& svg, const Box& box) { draw_heat_map(svg, box, map); }};
}

Panel coactivation_map(const moe::TraceView& trace, size_t layer) {
  const moe::Coactivation counts = moe::measure_coactivation(trace, static_cast<int>(layer));
  HeatMap map{fmt::format("Co-activation, MoE layer {}", layer),
              "also picked expert",
              "of tokens of expert",
              "share of tokens",
              {},
              {}};
  for (int a = 0; a < counts.num_experts; ++a) {
    std::vector<double>& row = map.rows.emplace_back();
    for (int b = 0; b < counts.num_experts; ++b) row.push_back(a == b ? 0 : counts.given(a, b));
  }
  return {false, [map](Svg& svg, const Box& box) { draw_heat_map(svg, box, map); }};
}

/// The layer that has most to show: where topics differ most, else whose load is the most uneven.
size_t telling_layer(const TraceReport& report) {
  std::vector<double> values;
  for (size_t l = 0; l < report.measures.layers.size(); ++l) {
    double value = 0;
    for (const moe::TopicMeasures& topic : report.topics.topics) value += topic.distance[l];
    if (report.topics.topics.size() < 2) value = report.measures.layers[l].floor;
    values.push_back(value);
  }
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::vector<Panel> panels_of(const moe::TraceView& trace, const TraceReport& report, size_t layer) {
  std::vector<Panel> panels{load_map(report), imbalance_bars(trace)};
  if (!report.batches.empty()) panels.push_back(batch_curves(report));
  const bool topics = report.topics.topics.size() > 1;
  if (topics) panels.push_back(topic_map(report, layer));
  if (topics) panels.push_back(topic_layers(report));
  panels.push_back(drift_map(report, layer));
  if (!report.pairs.empty()) panels.push_back(coactivation_map(trace, layer));
  return panels;
}

/// The boxes of the panels, row by row, and the height of all.
std::vector<Box> arrange(const std::vector<Panel>& panels, double& height) {
  const double half = (kWidth - 3 * kGap) / 2;
  std::vector<Box> boxes;
  double y = kHeading;
  bool left_taken = false;
  for (const Panel& panel : panels) {
    if (panel.whole_width && left_taken) y += kHeight + kGap, left_taken = false;
    const double x = left_taken ? 2 * kGap + half : kGap;
    boxes.push_back({x, y, panel.whole_width ? kWidth - 2 * kGap : half, kHeight});
    const bool row_full = panel.whole_width || left_taken;
    left_taken = !row_full;
    if (row_full) y += kHeight + kGap;
  }
  height = left_taken ? y + kHeight + kGap : y;
  return boxes;
}

}  // namespace

std::string trace_figure(const moe::TraceView& trace, const TraceReport& report, int layer) {
  const size_t shown = layer >= 0 ? static_cast<size_t>(layer) : telling_layer(report);
  const std::vector<Panel> panels = panels_of(trace, report, shown);
  double height = 0;
  const std::vector<Box> boxes = arrange(panels, height);
  Svg svg(kWidth, height);
  svg.text({kGap, 26}, fmt::format("Routing of {}", report.header.model),
           {Ink::strong, Anchor::start, 18, true, false});
  svg.text(
      {kGap, 44},
      fmt::format("{} experts, {} picks a token; {} tokens in {} steps", report.header.num_experts,
                  report.header.top_k, report.num_tokens, report.num_steps),
      {Ink::soft, Anchor::start, 12, false, false});
  for (size_t i = 0; i < panels.size(); ++i) panels[i].draw(svg, boxes[i]);
  return svg.finish();
}

}  // namespace switchyard::cli
