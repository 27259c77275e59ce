// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_plot.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/charts.h"

namespace switchyard::cli {
namespace {

constexpr double kWidth = 560, kHeight = 300, kGap = 30;

std::string series_name(const MoeRow& row) {
  return row.capacity == 0 ? row.kernel : fmt::format("{}, c = {:g}", row.kernel, row.capacity);
}

/// Appends to the series of that name, which is made at its first use.
void add_value(std::vector<Series>& series, const std::string& name, double value) {
  auto at = std::find_if(series.begin(), series.end(),
                         [&](const Series& one) { return one.name == name; });
  if (at == series.end()) at = series.insert(at, Series{name, {}, false});
  at->values.push_back(value);
}

/// The chart of rows of one shape and routing; every kernel has them in the same order of tokens.
CurveChart make_chart(const std::vector<const MoeRow*>& rows) {
  CurveChart chart;
  chart.title = fmt::format("{}, {}", rows.front()->shape, rows.front()->routing);
  chart.x_label = "tokens in the step";
  chart.y_label = "thousand tokens/s of a layer";
  Series floor{"floor", {}, true};
  for (const MoeRow* row : rows) {
    const std::string tokens = std::to_string(row->tokens);
    if (chart.positions.empty() || chart.positions.back() != tokens)
      chart.positions.push_back(tokens);
    add_value(chart.series, series_name(*row), 1e3 * row->tokens / row->time_us);
    const bool first_of_tokens = floor.values.size() < chart.positions.size();
    if (first_of_tokens) floor.values.push_back(1e3 * row->tokens / row->floor_us);
  }
  chart.series.push_back(std::move(floor));
  return chart;
}

}  // namespace

std::string moe_figure(const std::vector<MoeRow>& rows) {
  std::vector<std::vector<const MoeRow*>> groups;
  for (const MoeRow& row : rows) {
    const bool goes_on = !groups.empty() && groups.back().front()->shape == row.shape &&
                         groups.back().front()->routing == row.routing;
    if (!goes_on) groups.emplace_back();
    groups.back().push_back(&row);
  }
  const auto count = static_cast<double>(groups.size());
  Svg svg(kWidth + 2 * kGap, count * (kHeight + kGap) + kGap);
  double y = kGap;
  for (const auto& group : groups) {
    draw_curves(svg, {kGap, y, kWidth, kHeight}, make_chart(group));
    y += kHeight + kGap;
  }
  return svg.finish();
}

}  // namespace switchyard::cli
