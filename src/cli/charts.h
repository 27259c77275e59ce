// SPDX-License-Identifier: Apache-2.0
// Charts on an Svg: heat maps, bars and curves, each with its title, axes and legend inside a box.
#pragma once
#include <string>
#include <vector>

#include "cli/svg.h"

namespace switchyard::cli {

/// Cells from 0 (dark) to the largest (bright). More than kMostCells rows or columns are pooled, the
/// mean of neighbours in one cell.
struct HeatMap {
  std::string title, x_label, y_label, legend;
  std::vector<std::vector<double>> rows;  ///< equally long, at least one cell
  std::vector<std::string> row_names;     ///< of every row, or empty: their numbers
};
inline constexpr size_t kMostCells = 192;
void draw_heat_map(Svg& svg, const Box& box, const HeatMap& map);

struct Series {
  std::string name;
  std::vector<double> values;
  bool dashed = false;
};

/// Bars of several series side by side; every value belongs to the category of its place.
struct BarChart {
  std::string title, x_label, y_label;
  std::vector<std::string> categories;
  std::vector<Series> series;
};
void draw_bars(Svg& svg, const Box& box, const BarChart& chart);

/// Curves over positions at even distances, y from `least`.
struct CurveChart {
  std::string title, x_label, y_label;
  std::vector<std::string> positions;
  std::vector<Series> series;
  double least = 0;
};
void draw_curves(Svg& svg, const Box& box, const CurveChart& chart);

}  // namespace switchyard::cli
