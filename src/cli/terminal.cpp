// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/check.h"

namespace switchyard::cli {
namespace {

constexpr int kLeastColumns = 40, kMostColumns = 160;

Look look_of(int descriptor) {
  Look look;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool plain = (term != nullptr && std::strcmp(term, "dumb") == 0) ||
                     (no_color != nullptr && *no_color != '\0');
  look.terminal = ::isatty(descriptor) == 1 && !plain;
  winsize size{};
  if (look.terminal && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    look.columns = std::clamp<int>(size.ws_col, kLeastColumns, kMostColumns);
  return look;
}

/// One character: its code point, bytes and columns. A broken byte stands for itself, one column
/// wide.
struct Character {
  utf8proc_int32_t code = -1;
  size_t bytes = 1;
  int columns = 1;
};

Character next_character(std::string_view text) {
  Character character;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length =
      utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &character.code);
  if (length <= 0) return {};
  character.bytes = static_cast<size_t>(length);
  character.columns = utf8proc_charwidth(character.code);
  return character;
}

bool is_control(utf8proc_int32_t code) {
  return code >= 0 && utf8proc_category(code) == UTF8PROC_CATEGORY_CC;
}

std::string csv_cell(std::string_view cell) {
  if (cell.find_first_of(",\"\n") == std::string_view::npos) return std::string(cell);
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

Look stderr_look() { return look_of(STDERR_FILENO); }
Look stdout_look() { return look_of(STDOUT_FILENO); }
bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }

int display_width(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Character character = next_character(text);
    columns += character.columns;
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string clip(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  std::string out;
  int left = columns - 1;  // for the ellipsis
  while (!text.empty()) {
    const Character character = next_character(text);
    if (character.columns > left) break;
    left -= character.columns;
    out.append(text.substr(0, character.bytes));
    text.remove_prefix(character.bytes);
  }
  return out + "\u2026";
}

std::string printable(std::string_view text, Keep keep) {
  std::string out;
  while (!text.empty()) {
    const Character character = next_character(text);
    if (keep == Keep::line_breaks && (character.code == '\n' || character.code == '\t')) {
      out += text[0];
    } else if (character.code == '\n') {
      out += "\\n";
    } else if (character.code == '\t') {
      out += "\\t";
    } else if (character.code < 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_control(character.code)) {
      out += fmt::format("\\u{:04x}", character.code);
    } else {
      out.append(text.substr(0, character.bytes));
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

std::string pad(std::string_view text, int columns, Align align) {
  const int missing = std::max(columns - display_width(text), 0);
  const std::string space(static_cast<size_t>(missing), ' ');
  return align == Align::left ? std::string(text) + space : space + std::string(text);
}

std::string bar(double fraction, int columns) {
  constexpr const char* kEighths[] = {"",       "\u258F", "\u258E", "\u258D",
                                      "\u258C", "\u258B", "\u258A", "\u2589"};
  const double clamped = std::clamp(fraction, 0.0, 1.0);  // NaN comes out as NaN: no bar
  const int eighths = clamped > 0 ? static_cast<int>(std::lround(clamped * columns * 8)) : 0;
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "\u2588";
  out += kEighths[eighths % 8];
  return pad(out, columns, Align::left);
}

std::string styled(std::string_view text, Style style, const Look& look) {
  constexpr const char* kCodes[] = {"", "1", "2", "31", "32", "33", "36"};
  if (!look.terminal || style == Style::plain) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<size_t>(style)], text);
}

std::string size_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(kUnits)) size /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string count_text(int64_t number) {
  if (number < 10000) return fmt::format("{}", number);
  constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  auto count = static_cast<double>(number);
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(kUnits)) count /= 1000, ++unit;
  return fmt::format("{:.2f}{}", count, kUnits[unit]);
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

void Table::add(std::vector<std::string> cells) {
  SWITCHYARD_CHECK(cells.size() == columns_.size(), "{} cells in a table of {} columns",
                   cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<int> Table::widths() const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  return widths;
}

std::string Table::text(const Look& look, Titles titles) const {
  const std::vector<int> wide = widths();
  const auto line = [&](auto cell, auto style) {
    std::string row, space;
    int left = look.columns;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string padded = pad(cell(c), wide[c], columns_[c].align);
      const size_t last = padded.find_last_not_of(' ') + 1;  // spaces wait for what follows
      const std::string shown =
          look.terminal ? clip(padded.substr(0, last), left) : padded.substr(0, last);
      if (last > 0 && left > 0) row += space + styled(shown, style(c), look);
      space = last > 0 ? "" : space;
      space += padded.substr(last) + "  ";
      left -= wide[c] + 2;
    }
    return row + '\n';
  };
  std::string out;
  if (titles == Titles::shown)
    out = line([&](size_t c) { return columns_[c].title; }, [](size_t) { return Style::bold; });
  for (const auto& row : rows_)
    out += line([&](size_t c) { return row[c]; }, [&](size_t c) { return columns_[c].style; });
  return out;
}

std::string Table::markdown() const {
  const std::vector<int> wide = widths();
  std::string out = "|";
  for (size_t c = 0; c < columns_.size(); ++c)
    out += ' ' + pad(columns_[c].title, wide[c], columns_[c].align) + " |";
  out += "\n|";
  for (size_t c = 0; c < columns_.size(); ++c) {
    const std::string dashes(static_cast<size_t>(wide[c]), '-');
    out += columns_[c].align == Align::left ? ' ' + dashes + " |" : ' ' + dashes + ":|";
  }
  out += '\n';
  for (const auto& row : rows_) {
    out += '|';
    for (size_t c = 0; c < columns_.size(); ++c)
      out += ' ' + pad(row[c], wide[c], columns_[c].align) + " |";
    out += '\n';
  }
  return out;
}

std::string Table::csv() const {
  std::string out;
  for (size_t c = 0; c < columns_.size(); ++c)
    out += (c == 0 ? "" : ",") + csv_cell(columns_[c].title);
  out += '\n';
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) out += (c == 0 ? "" : ",") + csv_cell(row[c]);
    out += '\n';
  }
  return out;
}

}  // namespace switchyard::cli
