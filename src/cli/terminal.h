// SPDX-License-Identifier: Apache-2.0
// What a stream can show: whether it is a terminal, how wide it is, colours, and text measured in
// columns.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
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

/// A table of text: columns as wide as their widest cell.
class Table {
 public:
  /// Titles with the alignment of their columns.
  explicit Table(std::vector<std::pair<std::string, Align>> columns)
      : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);
  /// Columns apart by two spaces, titles underlined by nothing: for terminals and logs.
  std::string text(const Look& look) const;
  /// A GitHub table.
  std::string markdown() const;
  std::string csv() const;

 private:
  std::vector<int> widths() const;

  std::vector<std::pair<std::string, Align>> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace switchyard::cli
