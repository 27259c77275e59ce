// SPDX-License-Identifier: Apache-2.0
// What a stream can show: whether it is a terminal, how wide it is, colours, and text measured in
// columns.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard::cli {

/// How to draw: plain text for files and pipes, bars and colours for a terminal.
struct Look {
  bool terminal = false;
  int columns = 100;
};

/// Of standard error, where reports go. NO_COLOR and TERM=dumb make it plain.
Look stderr_look();
/// Of standard output, for commands whose result is a table.
Look stdout_look();
bool stdin_is_terminal();

/// Columns that UTF-8 text takes: wide characters count two, combining ones none, broken bytes one
/// each.
int display_width(std::string_view text);
/// The longest beginning of at most `columns` columns, with an ellipsis when something was cut.
std::string clip(std::string_view text, int columns);
/// Control characters as escapes, so that text of a model or a file cannot steer the terminal. Line
/// breaks and tabs may be kept as they are.
enum class Keep : uint8_t { nothing, line_breaks };
std::string printable(std::string_view text, Keep keep = Keep::nothing);

enum class Align : uint8_t { left, right };
std::string pad(std::string_view text, int columns, Align align);

/// A bar of `fraction` (0 to 1) of `columns`, in eighths of a column; padded with spaces.
std::string bar(double fraction, int columns);

enum class Style : uint8_t { plain, bold, dim, red, green, yellow, cyan };
/// Text in a style where the look allows it.
std::string styled(std::string_view text, Style style, const Look& look);

/// "25.3 MiB", "1.50 GiB"
std::string size_text(int64_t bytes);
/// "12.77 M", "30.5 B"
std::string count_text(int64_t number);
/// "1.23 s", "45.6 ms"
std::string time_text(double seconds);

/// A column of a table: its title, and how its cells stand and look.
struct Column {
  Column(std::string column_title, Align column_align, Style column_style = Style::plain)
      : title(std::move(column_title)), align(column_align), style(column_style) {}
  std::string title;
  Align align;
  Style style;
};

/// A table of plain cells: columns as wide as their widest cell.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);

  enum class Titles : uint8_t { shown, left_out };
  /// Columns two spaces apart; on a terminal, lines are cut at its edge.
  std::string text(const Look& look, Titles titles = Titles::shown) const;
  /// A GitHub table.
  std::string markdown() const;
  std::string csv() const;

 private:
  std::vector<int> widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace switchyard::cli
