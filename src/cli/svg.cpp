// SPDX-License-Identifier: Apache-2.0
#include "cli/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "base/utf8.h"

namespace switchyard::cli {
namespace {

constexpr std::string_view kStyle =
    "<style>text{font-family:system-ui,sans-serif}rect{shape-rendering:crispEdges}.paper{fill:#"
    "ffffff}.strong{fill:#1f2328}"
    ".soft{fill:#59636e}.faint{fill:#818b98}line.strong{stroke:#1f2328}line.soft{stroke:#818b98}"
    "line.faint{stroke:#d1d9e0}.frame{fill:none;stroke:#818b98}"
    "@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.strong{fill:#f0f6fc}.soft{fill:#9198a1}"
    ".faint{fill:#656c76}line.strong{stroke:#f0f6fc}line.soft{stroke:#656c76}"
    "line.faint{stroke:#2b323b}.frame{stroke:#656c76}}</style>\n";

std::string_view name_of(Ink ink) {
  constexpr std::string_view kNames[] = {"strong", "soft", "faint"};
  return kNames[static_cast<size_t>(ink)];
}

/// What XML forbids in text comes out as U+FFFD: broken UTF-8 and control characters.
std::string escaped(std::string_view text) {
  std::string out;
  for (size_t skip = 0; !text.empty();) {
    const size_t length = utf8_length(text, &skip);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += "\uFFFD";
    } else if (first == '<') {
      out += "&lt;";
    } else if (first == '&') {
      out += "&amp;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length > 0 ? length : skip);
  }
  return out;
}

}  // namespace

Svg::Svg(double width, double height) {
  out_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n",
      width, height);
  out_ += kStyle;
  out_ +=
      fmt::format("<rect class=\"paper\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width, height);
}

void Svg::rectangle(const Box& box, std::string_view colour, double opacity) {
  out_ +=
      fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"",
                  box.x, box.y, box.width, box.height, colour);
  if (opacity < 1) out_ += fmt::format(" fill-opacity=\"{:.2f}\"", opacity);
  out_ += "/>\n";
}

void Svg::frame(const Box& box) {
  out_ += fmt::format(
      "<rect class=\"frame\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>\n",
      box.x, box.y, box.width, box.height);
}

void Svg::line(Point from, Point to, Ink ink) {
  out_ +=
      fmt::format("<line class=\"{}\" x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\"/>\n",
                  name_of(ink), from.x, from.y, to.x, to.y);
}

void Svg::curve(std::span<const Point> points, std::string_view colour, bool dashed) {
  out_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{} points=\"",
                      colour, dashed ? " stroke-dasharray=\"5 4\"" : "");
  for (const Point& point : points) out_ += fmt::format("{:.2f},{:.2f} ", point.x, point.y);
  out_ += "\"/>\n";
}

void Svg::text(Point at, std::string_view text, const TextStyle& style) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  out_ += fmt::format(
      "<text class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.0f}\" "
      "text-anchor=\"{}\"",
      name_of(style.ink), at.x, at.y, style.size, kAnchors[static_cast<size_t>(style.anchor)]);
  if (style.bold) out_ += " font-weight=\"600\"";
  if (style.upwards) out_ += fmt::format(" transform=\"rotate(-90 {:.2f} {:.2f})\"", at.x, at.y);
  out_ += fmt::format(">{}</text>\n", escaped(text));
}

std::string Svg::finish() { return out_ + "</svg>\n"; }

std::string sequential_colour(double value) {
  constexpr std::array<std::array<double, 3>, 9> kStops{{{68, 1, 84},
                                                         {71, 45, 123},
                                                         {59, 82, 139},
                                                         {44, 114, 142},
                                                         {33, 145, 140},
                                                         {40, 174, 128},
                                                         {94, 201, 98},
                                                         {173, 220, 48},
                                                         {253, 231, 37}}};
  const double at = (value > 0 ? std::min(value, 1.0) : 0) * (kStops.size() - 1);
  const auto low = std::min(static_cast<size_t>(at), kStops.size() - 2);
  const double part = at - static_cast<double>(low);
  std::string colour = "#";
  for (size_t c = 0; c < 3; ++c) {
    const double channel = kStops[low][c] + part * (kStops[low + 1][c] - kStops[low][c]);
    colour += fmt::format("{:02x}", static_cast<int>(std::lround(channel)));
  }
  return colour;
}

std::string_view series_colour(size_t index) {
  constexpr std::string_view kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"};
  return kColours[index % std::size(kColours)];
}

}  // namespace switchyard::cli
