// SPDX-License-Identifier: Apache-2.0
#include "cli/charts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace switchyard::cli {
namespace {

constexpr TextStyle kTitle{Ink::strong, Anchor::start, 14, true, false};
constexpr TextStyle kAxisBelow{Ink::soft, Anchor::middle, 12, false, false};
constexpr TextStyle kAxisLeft{Ink::soft, Anchor::middle, 12, false, true};
constexpr TextStyle kTickBelow{Ink::soft, Anchor::middle, 11, false, false};
constexpr TextStyle kTickLeft{Ink::soft, Anchor::end, 11, false, false};
constexpr TextStyle kTickRight{Ink::soft, Anchor::start, 11, false, false};

/// What titles and axes take of a box.
struct Margins {
  double left = 52, right = 24, top = 30, bottom = 40;
};
constexpr Margins kWithNames{.left = 52, .right = 24, .top = 54, .bottom = 40};

/// The place of a chart's marks.
Box inside(const Box& box, const Margins& margins) {
  return {box.x + margins.left, box.y + margins.top, box.width - margins.left - margins.right,
          box.height - margins.top - margins.bottom};
}

void draw_labels(Svg& svg, const Box& box, const Box& plot, const std::string& title,
                 const std::string& x_label, const std::string& y_label) {
  svg.text({box.x, box.y + 15}, title, kTitle);
  svg.text({plot.x + plot.width / 2, plot.y + plot.height + 34}, x_label, kAxisBelow);
  svg.text({box.x + 12, plot.y + plot.height / 2}, y_label, kAxisLeft);
}

/// A round distance of ticks that gives about four of them up to `most`.
double tick_distance(double most) {
  const double rough = most / 4, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

std::string number(double value) { return fmt::format("{:g}", std::round(value * 1e6) / 1e6); }

double largest(const std::vector<Series>& series) {
  double most = 0;
  for (const Series& one : series)
    for (const double value : one.values) most = std::max(most, value);
  return most;
}

/// Horizontal lines at round values, and where a value stands.
class Scale {
 public:
  Scale(double least, double most, const Box& plot)
      : least_(least), most_(std::max(most, least + 1e-9)), plot_(plot) {}
  double y(double value) const {
    return plot_.y + plot_.height * (1 - (value - least_) / (most_ - least_));
  }
  void draw(Svg& svg) const {
    const double distance = tick_distance(most_ - least_);
    for (double at = std::ceil(least_ / distance) * distance; at <= most_ + 1e-9; at += distance) {
      svg.line({plot_.x, y(at)}, {plot_.x + plot_.width, y(at)}, Ink::faint);
      svg.text({plot_.x - 6, y(at) + 4}, number(at), kTickLeft);
    }
  }

 private:
  double least_, most_;
  Box plot_;
};

/// Names of the series in their colours, on a line of their own above the plot.
void draw_series_names(Svg& svg, const Box& plot, const std::vector<Series>& series) {
  double x = plot.x;
  for (size_t i = 0; i < series.size(); ++i) {
    const Point mark[] = {{x, plot.y - 16}, {x + 18, plot.y - 16}};
    svg.curve(mark, series_colour(i), series[i].dashed);
    svg.text({x + 23, plot.y - 12}, series[i].name, kTickRight);
    x += 23 + 5.8 * static_cast<double>(series[i].name.size()) + 16;
  }
}

/// Means of neighbours, so that at most kMostCells are left; `each` becomes how many make one.
std::vector<double> pooled(const std::vector<double>& cells, size_t& each) {
  each = (cells.size() + kMostCells - 1) / kMostCells;
  std::vector<double> out;
  for (size_t begin = 0; begin < cells.size(); begin += each) {
    const size_t end = std::min(begin + each, cells.size());
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += cells[i];
    out.push_back(sum / static_cast<double>(end - begin));
  }
  return out;
}

std::vector<std::vector<double>> transposed(const std::vector<std::vector<double>>& rows) {
  std::vector<std::vector<double>> columns(rows[0].size());
  for (const auto& row : rows)
    for (size_t c = 0; c < columns.size(); ++c) columns[c].push_back(row[c]);
  return columns;
}

/// The map's cells, and how many of its rows and columns make one.
struct Cells {
  explicit Cells(const HeatMap& map) {
    for (const auto& row : map.rows) rows.push_back(pooled(row, per_column));
    std::vector<std::vector<double>> columns = transposed(rows);
    for (auto& column : columns) column = pooled(column, per_row);
    rows = transposed(columns);
    for (const auto& row : rows) most = std::max(most, *std::max_element(row.begin(), row.end()));
  }
  std::vector<std::vector<double>> rows;
  size_t per_row = 1, per_column = 1;
  double most = 0;
};

void draw_cells(Svg& svg, const Box& plot, const Cells& cells) {
  const double height = plot.height / static_cast<double>(cells.rows.size());
  const double width = plot.width / static_cast<double>(cells.rows[0].size());
  for (size_t r = 0; r < cells.rows.size(); ++r)
    for (size_t c = 0; c < cells.rows[r].size(); ++c) {
      const double value = cells.most > 0 ? cells.rows[r][c] / cells.most : 0;
      // A little larger than the cell, or the paper shows between neighbours.
      svg.rectangle({plot.x + width * static_cast<double>(c),
                     plot.y + height * static_cast<double>(r), width + 0.3, height + 0.3},
                    sequential_colour(value));
    }
  svg.frame(plot);
}

/// Numbers below the columns, at most twelve of them.
void draw_column_numbers(Svg& svg, const Box& plot, size_t columns) {
  size_t every = 1;
  while (columns > 12 * every) every *= 2;
  const double width = plot.width / static_cast<double>(columns);
  for (size_t c = 0; c < columns; c += every)
    svg.text({plot.x + width * (static_cast<double>(c) + 0.5), plot.y + plot.height + 15},
             std::to_string(c), kTickBelow);
}

void draw_row_names(Svg& svg, const Box& plot, const HeatMap& map) {
  const size_t rows = map.rows.size();
  const auto most = static_cast<size_t>(plot.height / 13);
  const size_t every = std::max<size_t>((rows + most - 1) / std::max<size_t>(most, 1), 1);
  const double height = plot.height / static_cast<double>(rows);
  for (size_t r = 0; r < rows; r += every)
    svg.text({plot.x - 6, plot.y + height * (static_cast<double>(r) + 0.5) + 4},
             map.row_names.empty() ? std::to_string(r) : map.row_names[r], kTickLeft);
}

/// The colours of 0 to the largest value, from bottom to top.
void draw_colour_bar(Svg& svg, const Box& bar, double most, const std::string& legend) {
  constexpr int kSteps = 48;
  for (int i = 0; i < kSteps; ++i)
    svg.rectangle({bar.x, bar.y + bar.height * (kSteps - 1 - i) / kSteps, bar.width,
                   bar.height / kSteps + 0.3},
                  sequential_colour((i + 0.5) / kSteps));
  svg.frame(bar);
  const double distance = most > 0 ? tick_distance(most) : 1;
  for (double at = 0; at <= most + 1e-9; at += distance)
    svg.text({bar.x + bar.width + 5, bar.y + bar.height * (1 - (most > 0 ? at / most : 0)) + 4},
             number(at), kTickRight);
  svg.text({bar.x + bar.width + 46, bar.y + bar.height / 2}, legend, kAxisLeft);
}

}  // namespace

void draw_heat_map(Svg& svg, const Box& box, const HeatMap& map) {
  size_t longest = 2;
  for (const std::string& name : map.row_names) longest = std::max(longest, name.size());
  const Box plot =
      inside(box, {.left = 34 + 6.2 * static_cast<double>(std::min<size_t>(longest, 24)),
                   .right = 80,
                   .top = 30,
                   .bottom = 40});
  const Cells cells(map);
  draw_labels(svg, box, plot, map.title, map.x_label, map.y_label);
  draw_cells(svg, plot, cells);
  draw_column_numbers(svg, plot, map.rows[0].size());
  draw_row_names(svg, plot, map);
  draw_colour_bar(svg, {plot.x + plot.width + 14, plot.y, 12, plot.height}, cells.most, map.legend);
}

void draw_bars(Svg& svg, const Box& box, const BarChart& chart) {
  const Box plot = inside(box, kWithNames);
  const Scale scale(0, largest(chart.series), plot);
  draw_labels(svg, box, plot, chart.title, chart.x_label, chart.y_label);
  draw_series_names(svg, plot, chart.series);
  scale.draw(svg);
  const double width = plot.width / static_cast<double>(chart.categories.size());
  const double bar = 0.8 * width / static_cast<double>(std::max<size_t>(chart.series.size(), 1));
  for (size_t c = 0; c < chart.categories.size(); ++c) {
    const double left = plot.x + width * (static_cast<double>(c) + 0.1);
    for (size_t s = 0; s < chart.series.size(); ++s) {
      const double top = scale.y(chart.series[s].values[c]);
      svg.rectangle({left + bar * static_cast<double>(s), top, bar, plot.y + plot.height - top},
                    series_colour(s));
    }
    svg.text({plot.x + width * (static_cast<double>(c) + 0.5), plot.y + plot.height + 15},
             chart.categories[c], kTickBelow);
  }
  svg.line({plot.x, plot.y + plot.height}, {plot.x + plot.width, plot.y + plot.height}, Ink::soft);
}

void draw_curves(Svg& svg, const Box& box, const CurveChart& chart) {
  const Box plot = inside(box, kWithNames);
  const Scale scale(chart.least, largest(chart.series), plot);
  draw_labels(svg, box, plot, chart.title, chart.x_label, chart.y_label);
  draw_series_names(svg, plot, chart.series);
  scale.draw(svg);
  const size_t last = std::max<size_t>(chart.positions.size(), 2) - 1;
  const auto x = [&](size_t i) {
    return plot.x + plot.width * static_cast<double>(i) / static_cast<double>(last);
  };
  for (size_t i = 0; i < chart.positions.size(); ++i)
    svg.text({x(i), plot.y + plot.height + 15}, chart.positions[i], kTickBelow);
  for (size_t s = 0; s < chart.series.size(); ++s) {
    std::vector<Point> points;
    for (size_t i = 0; i < chart.series[s].values.size(); ++i)
      points.push_back({x(i), scale.y(chart.series[s].values[i])});
    svg.curve(points, series_colour(s), chart.series[s].dashed);
  }
  svg.line({plot.x, plot.y + plot.height}, {plot.x + plot.width, plot.y + plot.height}, Ink::soft);
}

}  // namespace switchyard::cli
