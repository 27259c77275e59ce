// SPDX-License-Identifier: Apache-2.0
// Characters: UTF-8 in and out, the four normal forms, and the classes that tokenizers ask for.
// Reference: Unicode Standard Annex 15 (normal forms); utf8proc holds the tables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace switchyard::text {

/// U+FFFD, which stands for what cannot be read.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Where the first byte lies that is no UTF-8; nothing when all of it is.
std::optional<size_t> find_invalid_utf8(std::string_view text) noexcept;

/// Bytes of the character at `text[at]`, which must be valid UTF-8.
inline size_t character_length(std::string_view text, size_t at) noexcept {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// The character at `text[at]`, which must be valid UTF-8; moves `at` behind it.
char32_t next_character(std::string_view text, size_t& at) noexcept;
/// The character that ends before `text[at]` (at > 0); moves `at` to its start.
char32_t previous_character(std::string_view text, size_t& at) noexcept;

void append_character(std::string& out, char32_t character);

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

/// The normal form of valid UTF-8, in time n log n however many marks follow one letter.
std::string normal_form(std::string_view text, NormalForm form);

/// Appends the lower case of one character: its full mapping, without regard to its neighbours.
void append_lower_case(std::string& out, char32_t character);

bool is_white_space(char32_t character) noexcept;  ///< the property White_Space
bool is_numeric(char32_t character) noexcept;      ///< general category N
bool is_punctuation(char32_t character) noexcept;  ///< general category P, or ASCII punctuation
bool is_word(char32_t character) noexcept;         ///< \w of Unicode Technical Standard 18

/// Bytes in, whole characters out. What is no UTF-8 becomes U+FFFD, one for each maximal broken
/// part (Unicode 15, section 3.9; Python's errors="replace").
class Utf8Stream {
 public:
  Utf8Stream() { joined_.reserve(256); }
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  std::string held_;    // the beginning of a character, at most three bytes
  std::string joined_;  // reused
};

}  // namespace switchyard::text
