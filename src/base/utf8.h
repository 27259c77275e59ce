// SPDX-License-Identifier: Apache-2.0
// The length of one UTF-8 sequence, or of its broken part (Unicode 15, table 3-7); whether a text is UTF-8.
#pragma once
#include <cstddef>
#include <string_view>

namespace switchyard {

/// Bytes of the valid sequence at the start of `text` (not empty), or 0 when it is broken: then `skip` is the length
/// of its maximal broken part, which stands for one U+FFFD.
inline size_t utf8_length(std::string_view text, size_t* skip) noexcept {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  *skip = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;  // a continuation, an overlong form, or above U+10FFFF
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone excludes overlong forms, surrogates and what is above U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i, low = 0x80, high = 0xBF) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) {
      *skip = i;
      return 0;
    }
  }
  return length;
}

inline bool is_utf8(std::string_view text) noexcept {
  for (size_t skip = 0; !text.empty();) {
    const size_t length = utf8_length(text, &skip);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace switchyard
