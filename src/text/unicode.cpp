// SPDX-License-Identifier: Apache-2.0
// Decomposition and composition are utf8proc's, character by character; the canonical order of marks
// is sorted here, because utf8proc's exchange sort is quadratic in the length of a run of marks.
#include "text/unicode.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"

namespace switchyard::text {
namespace {

using CodePoint = utf8proc_int32_t;

utf8proc_category_t category(char32_t character) noexcept {
  return utf8proc_category(static_cast<CodePoint>(character));
}

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::vector<CodePoint> decompose(std::string_view text, bool compatible) {
  const int options =
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? int{UTF8PROC_COMPAT} : 0);
  std::vector<CodePoint> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    CodePoint parts[32];  // the longest decomposition, U+FDFA, has 18
    const auto character = static_cast<CodePoint>(next_character(text, at));
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        character, parts, std::size(parts), static_cast<utf8proc_option_t>(options), nullptr);
    SWITCHYARD_CHECK(count >= 0 && count <= utf8proc_ssize_t{std::size(parts)}, "U+{:04X} has {}",
                     character, count);
    out.insert(out.end(), parts, parts + count);
  }
  return out;
}

/// Sorts each run of marks by combining class, marks of the same class staying in order.
void order_marks(std::vector<CodePoint>& text) {
  const auto rank = [](CodePoint c) { return utf8proc_get_property(c)->combining_class; };
  for (auto at = text.begin(); at != text.end();) {
    if (rank(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, text.end(), [&](CodePoint c) { return rank(c) == 0; });
    std::stable_sort(at, end, [&](CodePoint a, CodePoint b) { return rank(a) < rank(b); });
    at = end;
  }
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) noexcept {
  for (size_t at = 0; at < text.size();) {
    size_t skip = 0;
    const size_t length = utf8_length(text.substr(at), &skip);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

char32_t next_character(std::string_view text, size_t& at) noexcept {
  const size_t length = character_length(text, at);
  const auto lead = static_cast<unsigned char>(text[at]);
  char32_t character = length == 1 ? lead : lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    character = character << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  }
  at += length;
  return character;
}

char32_t previous_character(std::string_view text, size_t& at) noexcept {
  --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) --at;
  size_t from = at;
  return next_character(text, from);
}

void append_character(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);  // all four forms keep ASCII
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  std::vector<CodePoint> characters = decompose(text, compatible);
  order_marks(characters);
  auto length = static_cast<utf8proc_ssize_t>(characters.size());
  if (compose) {
    const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    length = utf8proc_normalize_utf32(characters.data(), length,
                                      static_cast<utf8proc_option_t>(options));
    SWITCHYARD_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_character(out, static_cast<char32_t>(characters[static_cast<size_t>(i)]));
  }
  return out;
}

void append_lower_case(std::string& out, char32_t character) {
  // The one character whose lower case is two: I with dot above.
  if (character == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  append_character(out, static_cast<char32_t>(utf8proc_tolower(static_cast<CodePoint>(character))));
}

bool is_white_space(char32_t c) noexcept {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) noexcept {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t c) noexcept {
  const utf8proc_category_t kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) return true;  // L, M, Nd, Nl
  if (kind == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Letters in circles and squares are symbols with the property Alphabetic.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  if (!held_.empty()) {
    joined_ = held_;
    joined_ += bytes;
    bytes = joined_;
    held_.clear();
  }
  while (!bytes.empty()) {
    size_t skip = 0;
    const size_t length = utf8_length(bytes, &skip);
    const auto lead = static_cast<unsigned char>(bytes[0]);
    if (length > 0) {
      out += bytes.substr(0, length);
      bytes.remove_prefix(length);
    } else if (skip == bytes.size() && lead >= 0xC2 && lead <= 0xF4) {
      held_ = bytes;  // so far the beginning of a character
      return;
    } else {
      out += kReplacement;
      bytes.remove_prefix(skip);
    }
  }
}

void Utf8Stream::finish(std::string& out) {
  if (!held_.empty()) out += kReplacement;
  held_.clear();
}

}  // namespace switchyard::text
