// SPDX-License-Identifier: Apache-2.0
// Svg: a drawing of rectangles, lines and text, as a file that browsers show in light and dark.
// Lengths are pixels from the upper left corner.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace switchyard::cli {

/// Ink that follows the viewer's light or dark scheme.
enum class Ink : unsigned char { strong, soft, faint };
enum class Anchor : unsigned char { start, middle, end };

struct Point {
  double x = 0, y = 0;
};
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

struct TextStyle {
  Ink ink = Ink::strong;
  Anchor anchor = Anchor::start;
  double size = 12;
  bool bold = false, upwards = false;
};

class Svg {
 public:
  Svg(double width, double height);

  void rectangle(const Box& box, std::string_view colour, double opacity = 1);
  /// An outline in soft ink.
  void frame(const Box& box);
  void line(Point from, Point to, Ink ink);
  void curve(std::span<const Point> points, std::string_view colour, bool dashed);
  /// y is the base line.
  void text(Point at, std::string_view text, const TextStyle& style = {});

  /// The whole file.
  std::string finish();

 private:
  std::string out_;
};

/// "#rrggbb" of a value in [0, 1], from dark blue to yellow: even steps for the eye, with and
/// without colour vision. Source: viridis, Smith and van der Walt 2015 (CC0), nine of its colours.
std::string sequential_colour(double value);
/// Colours of series that all eyes tell apart. Source: Okabe and Ito 2008.
std::string_view series_colour(size_t index);

}  // namespace switchyard::cli
