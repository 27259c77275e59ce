// SPDX-License-Identifier: Apache-2.0
// Text: the strings of templates. UTF-8 that remembers which of its bytes the template wrote itself.
//
// Trusted bytes may spell special tokens; all others (what users said) stay plain text when they are
// tokenized. Every operation on strings is built from the two append functions, so that each byte of a
// result keeps the origin of the byte it stems from. Positions are bytes; characters are code points.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::text {

/// A piece of rendered text. `from_template`: special tokens spelled in it are meant.
struct Segment {
  std::string text;
  bool from_template = false;
};

}  // namespace switchyard::text

namespace switchyard::text::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool trusted) { append(bytes, trusted); }

  std::string_view view() const noexcept { return bytes_; }
  size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }
  bool trusted_at(size_t at) const noexcept;
  bool all_trusted() const noexcept {
    return runs_.empty() || (runs_.size() == 1 && runs_[0].trusted);
  }

  void append(std::string_view bytes, bool trusted);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  Text slice(size_t begin, size_t end) const;

  /// The runs as segments, none empty.
  std::vector<Segment> segments() const;

  /// Marked by the filter "safe": the filter "escape" leaves it alone.
  bool is_markup = false;

 private:
  struct Run {
    size_t end;  // one behind its last byte
    bool trusted;
  };
  size_t find_run(size_t at) const noexcept;

  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ in trust
};

/// What str.strip() removes: White_Space and the four separators of ASCII.
bool is_space(char32_t character) noexcept;

/// Byte offsets of all characters, and the size of the text at the end.
std::vector<size_t> character_offsets(std::string_view text);
size_t count_characters(std::string_view text) noexcept;

/// str.strip, lstrip and rstrip; without `characters`, white space.
Text strip(const Text& text, const std::string_view* characters, bool left, bool right);

Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text capitalize(const Text& text);
/// str.title: each run of letters starts with a capital.
Text to_title(const Text& text);
/// The filter "title": words start after spaces, hyphens and opening brackets.
Text title_filter(const Text& text);

bool is_letter(char32_t character) noexcept;
bool is_cased(char32_t character) noexcept;

}  // namespace switchyard::text::jinja
