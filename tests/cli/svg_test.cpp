// SPDX-License-Identifier: Apache-2.0
// Drawings: text cannot break out of its element, colours rise evenly in brightness, and charts of any size stay small
// and inside.
#include "cli/svg.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "cli/charts.h"

namespace switchyard::cli {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Svg, EscapesWhatXmlWouldObey) {
  Svg svg(10, 10);
  svg.text({1, 2}, "<a href='x'>&amp; \x01\xFF\u00FC</a>");
  const std::string file = svg.finish();
  EXPECT_NE(file.find(">&lt;a href='x'>&amp;amp; \uFFFD\uFFFD\u00FC&lt;/a></text>"),
            std::string::npos)
      << file;
  EXPECT_EQ(count(file, "<svg "), 1u);
  EXPECT_TRUE(file.ends_with("</svg>\n"));
}

/// Relative luminance of sRGB (WCAG 2).
double luminance(const std::string& colour) {
  double sum = 0;
  constexpr double kWeights[] = {0.2126, 0.7152, 0.0722};
  for (size_t c = 0; c < 3; ++c) {
    const double value = std::stoi(colour.substr(1 + 2 * c, 2), nullptr, 16) / 255.0;
    sum +=
        kWeights[c] * (value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4));
  }
  return sum;
}

TEST(Svg, SequentialColoursRiseInBrightness) {
  EXPECT_EQ(sequential_colour(0), "#440154");
  EXPECT_EQ(sequential_colour(1), "#fde725");
  EXPECT_EQ(sequential_colour(-3), sequential_colour(0));
  EXPECT_EQ(sequential_colour(7), sequential_colour(1));
  EXPECT_EQ(sequential_colour(std::nan("")), sequential_colour(0));
  for (int i = 1; i <= 100; ++i)
    EXPECT_GE(luminance(sequential_colour(i / 100.0)),
              luminance(sequential_colour((i - 1) / 100.0)))
        << i;
}

TEST(Charts, LargeHeatMapsArePooled) {
  HeatMap map{"t", "x", "y", "l", {}, {}};
  for (int r = 0; r < 500; ++r) map.rows.emplace_back(3000, r < 250 ? 1.0 : 0.0);
  Svg svg(100, 100);
  draw_heat_map(svg, {0, 0, 100, 100}, map);
  const std::string file = svg.finish();
  EXPECT_LT(count(file, "<rect"), kMostCells * kMostCells + 100);
  EXPECT_GT(count(file, "fill=\"#fde725\""), 1000u);
  EXPECT_GT(count(file, "fill=\"#440154\""), 1000u);
}

TEST(Charts, FlatAndEmptyDataAreDrawn) {
  Svg svg(300, 300);
  draw_heat_map(svg, {0, 0, 300, 300}, {"t", "x", "y", "l", {{0, 0}}, {"a"}});
  draw_bars(svg, {0, 0, 300, 300}, {"t", "x", "y", {"a", "b"}, {{"s", {0, 0}}}});
  draw_curves(svg, {0, 0, 300, 300}, {"t", "x", "y", {"1"}, {{"s", {1}}}, 1});
  const std::string file = svg.finish();
  EXPECT_EQ(file.find("nan"), std::string::npos);
  EXPECT_EQ(file.find("inf"), std::string::npos);
}

TEST(Charts, CurvesStandWhereTheScaleSays) {
  Svg svg(300, 300);
  draw_curves(svg, {0, 0, 276, 294}, {"t", "x", "y", {"1", "2"}, {{"s", {5, 10}, false}}, 0});
  // Plot: 52 to 252 across, 54 to 254 down; 10 is the top.
  EXPECT_NE(svg.finish().find("points=\"52.00,154.00 252.00,54.00 \""), std::string::npos);
}

}  // namespace
}  // namespace switchyard::cli
