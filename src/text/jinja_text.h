// SPDX-License-Identifier: Apache-2.0
// Text: a string of a template that knows which of its bytes the template's author wrote.
//
// Bytes are trusted (template text, values of special tokens, printed numbers) or data (whatever came in
// from outside). Slicing, joining and replacing keep that apart byte by byte; what rewrites letters
// makes the whole result data if any of its input is.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard::text::jinja {

enum class Origin : uint8_t { trusted, data };

class Text {
 public:
  Text() = default;
  Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)), first_(origin) {}

  const std::string& bytes() const noexcept { return bytes_; }
  size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }

  /// Data, if any byte is.
  Origin origin() const noexcept;
  /// Bytes [from, to) with their origins.
  Text slice(size_t from, size_t to) const;

  void append(std::string_view bytes, Origin origin);
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t from, size_t to);

  /// Calls `visit(std::string_view stretch, Origin)` for bytes [from, to), one stretch of one origin
  /// after the other.
  template <class Visit>
  void for_each_stretch(size_t from, size_t to, const Visit& visit) const {
    size_t stretch = flips_before_or_at(from);
    while (from < to) {
      const size_t end = stretch < flips_.size() && flips_[stretch] < to ? flips_[stretch] : to;
      visit(std::string_view(bytes_).substr(from, end - from), origin_of_stretch(stretch));
      from = end;
      ++stretch;
    }
  }
  template <class Visit>
  void for_each_stretch(const Visit& visit) const {
    for_each_stretch(0, size(), visit);
  }

 private:
  size_t flips_before_or_at(size_t at) const noexcept;
  Origin origin_of_stretch(size_t stretch) const noexcept {
    return static_cast<Origin>(static_cast<uint8_t>(first_) ^ (stretch & 1U));
  }

  std::string bytes_;
  Origin first_ = Origin::trusted;  // of byte 0
  std::vector<size_t> flips_;       // where the origin changes to the other one, ascending
};

}  // namespace switchyard::text::jinja
