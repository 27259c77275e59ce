// SPDX-License-Identifier: Apache-2.0
// Implements jinja_text.h: origins, characters, strip. Changes of case are in jinja_case.cpp.
#include "text/jinja_text.h"

#include <algorithm>

#include "text/unicode.h"

namespace switchyard::text::jinja {

size_t Text::find_run(size_t at) const noexcept {
  const auto found = std::upper_bound(runs_.begin(), runs_.end(), at,
                                      [](size_t value, const Run& run) { return value < run.end; });
  return static_cast<size_t>(found - runs_.begin());
}

bool Text::trusted_at(size_t at) const noexcept {
  const size_t run = find_run(at);
  return run < runs_.size() && runs_[run].trusted;
}

void Text::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (runs_.empty() || runs_.back().trusted != trusted)
    runs_.push_back({bytes_.size(), trusted});
  else
    runs_.back().end = bytes_.size();
}

void Text::append(const Text& other, size_t begin, size_t end) {
  end = std::min(end, other.size());
  for (size_t run = other.find_run(begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    append(other.view().substr(begin, stop - begin), other.runs_[run].trusted);
    begin = stop;
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  return result;
}

std::vector<Segment> Text::segments() const {
  std::vector<Segment> segments;
  size_t begin = 0;
  for (const Run& run : runs_) {
    segments.push_back({bytes_.substr(begin, run.end - begin), run.trusted});
    begin = run.end;
  }
  return segments;
}

bool is_space(char32_t c) noexcept { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += character_length(text, at)) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

size_t count_characters(std::string_view text) noexcept {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

namespace {

bool is_stripped(std::string_view character, char32_t code, const std::string_view* characters) {
  if (!characters) return is_space(code);
  // UTF-8 synchronizes itself: a whole character is never found across two others.
  return characters->find(character) != std::string_view::npos;
}

}  // namespace

Text strip(const Text& text, const std::string_view* characters, bool left, bool right) {
  const std::string_view view = text.view();
  size_t begin = 0;
  size_t end = view.size();
  while (left && begin < end) {
    size_t next = begin;
    const char32_t code = next_character(view, next);
    if (!is_stripped(view.substr(begin, next - begin), code, characters)) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t before = end;
    const char32_t code = previous_character(view, before);
    if (!is_stripped(view.substr(before, end - before), code, characters)) break;
    end = before;
  }
  return text.slice(begin, end);
}

}  // namespace switchyard::text::jinja
