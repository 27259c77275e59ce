// SPDX-License-Identifier: Apache-2.0
// Upper, lower and title case of jinja_text.h as Python has them: full mappings, each character by itself
// except the final sigma. Reference: Unicode Standard, SpecialCasing.txt (unconditional mappings).
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <utf8proc.h>

#include "text/jinja_text.h"
#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

using CodePoint = utf8proc_int32_t;

struct Expansion {
  char32_t from;
  const char32_t* upper;
};

// Letters whose capital form is more than one character, by code. The Greek ones with an iota below
// (U+1F80..1FAF and a few more) follow a rule and are computed.
constexpr Expansion kExpansions[] = {
    {0x00DF, U"SS"},
    {0x0149, U"\u02BCN"},
    {0x01F0, U"J\u030C"},
    {0x0390, U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301"},
    {0x0587, U"\u0535\u0552"},
    {0x1E96, U"H\u0331"},
    {0x1E97, U"T\u0308"},
    {0x1E98, U"W\u030A"},
    {0x1E99, U"Y\u030A"},
    {0x1E9A, U"A\u02BE"},
    {0x1F50, U"\u03A5\u0313"},
    {0x1F52, U"\u03A5\u0313\u0300"},
    {0x1F54, U"\u03A5\u0313\u0301"},
    {0x1F56, U"\u03A5\u0313\u0342"},
    {0x1FB2, U"\u1FBA\u0399"},
    {0x1FB3, U"\u0391\u0399"},
    {0x1FB4, U"\u0386\u0399"},
    {0x1FB6, U"\u0391\u0342"},
    {0x1FB7, U"\u0391\u0342\u0399"},
    {0x1FBC, U"\u0391\u0399"},
    {0x1FC2, U"\u1FCA\u0399"},
    {0x1FC3, U"\u0397\u0399"},
    {0x1FC4, U"\u0389\u0399"},
    {0x1FC6, U"\u0397\u0342"},
    {0x1FC7, U"\u0397\u0342\u0399"},
    {0x1FCC, U"\u0397\u0399"},
    {0x1FD2, U"\u0399\u0308\u0300"},
    {0x1FD3, U"\u0399\u0308\u0301"},
    {0x1FD6, U"\u0399\u0342"},
    {0x1FD7, U"\u0399\u0308\u0342"},
    {0x1FE2, U"\u03A5\u0308\u0300"},
    {0x1FE3, U"\u03A5\u0308\u0301"},
    {0x1FE4, U"\u03A1\u0313"},
    {0x1FE6, U"\u03A5\u0342"},
    {0x1FE7, U"\u03A5\u0308\u0342"},
    {0x1FF2, U"\u1FFA\u0399"},
    {0x1FF3, U"\u03A9\u0399"},
    {0x1FF4, U"\u038F\u0399"},
    {0x1FF6, U"\u03A9\u0342"},
    {0x1FF7, U"\u03A9\u0342\u0399"},
    {0x1FFC, U"\u03A9\u0399"},
    {0xFB00, U"FF"},
    {0xFB01, U"FI"},
    {0xFB02, U"FL"},
    {0xFB03, U"FFI"},
    {0xFB04, U"FFL"},
    {0xFB05, U"ST"},
    {0xFB06, U"ST"},
    {0xFB13, U"\u0544\u0546"},
    {0xFB14, U"\u0544\u0535"},
    {0xFB15, U"\u0544\u053B"},
    {0xFB16, U"\u054E\u0546"},
    {0xFB17, U"\u0544\u053D"},
};

const char32_t* find_expansion(char32_t c) {
  const auto* found =
      std::lower_bound(std::begin(kExpansions), std::end(kExpansions), c,
                       [](const Expansion& e, char32_t code) { return e.from < code; });
  return found != std::end(kExpansions) && found->from == c ? found->upper : nullptr;
}

/// The breathing capital below an iota of U+1F80..1FAF: 1F80 and 1F88 both stem from 1F08.
char32_t without_iota(char32_t c) {
  const char32_t row = (c - 0x1F80) / 0x10;
  const char32_t base = row == 0 ? 0x1F08 : row == 1 ? 0x1F28 : 0x1F68;
  return base + (c & 7);
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const char32_t* upper = find_expansion(c)) {
    for (; *upper; ++upper) append_character(out, *upper);
  } else if (c >= 0x1F80 && c <= 0x1FAF) {
    append_character(out, without_iota(c));
    append_character(out, 0x399);
  } else {
    append_character(out, static_cast<char32_t>(utf8proc_toupper(static_cast<CodePoint>(c))));
  }
}

/// Title case: as upper case, but only the first character of an expansion stays a capital; letters that
/// have a title form of their own take it.
void append_title(std::string& out, char32_t c) {
  const bool iota = (c >= 0x1F80 && c <= 0x1FAF) || c == 0x1FB3 || c == 0x1FBC || c == 0x1FC3 ||
                    c == 0x1FCC || c == 0x1FF3 || c == 0x1FFC;
  const char32_t* upper = iota ? nullptr : find_expansion(c);
  if (!upper) {
    append_character(out, static_cast<char32_t>(utf8proc_totitle(static_cast<CodePoint>(c))));
    return;
  }
  if (c == 0x149) {  // an apostrophe comes first
    for (; *upper; ++upper) append_character(out, *upper);
    return;
  }
  append_character(out, *upper);
  for (++upper; *upper; ++upper) {
    // A iota after a capital is written below it; combining marks have no case.
    if (*upper == 0x399)
      append_character(out, 0x345);
    else
      append_lower_case(out, *upper);
  }
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<CodePoint>(c)); }

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

/// A capital sigma ends a word when a cased letter stands before it and none behind.
bool is_final_sigma(std::string_view view, size_t at, size_t next) {
  bool before = false;
  while (at > 0) {
    const char32_t c = previous_character(view, at);
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  while (next < view.size()) {
    const char32_t c = next_character(view, next);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view view, size_t at, size_t next, char32_t c) {
  if (c == 0x3A3 && is_final_sigma(view, at, next))
    append_character(out, 0x3C2);
  else
    append_lower_case(out, c);
}

enum class Letter { upper, lower, title };

/// Rewrites each character; `choose` is asked for every one, in order.
template <class Choose>
Text rewrite(const Text& text, Choose choose) {
  Text result;
  std::string changed;
  const std::string_view view = text.view();
  for (size_t at = 0; at < view.size();) {
    size_t next = at;
    const char32_t c = next_character(view, next);
    changed.clear();
    switch (choose(c)) {
      case Letter::upper:
        append_upper(changed, c);
        break;
      case Letter::title:
        append_title(changed, c);
        break;
      case Letter::lower:
        append_lower(changed, view, at, next, c);
        break;
    }
    result.append(changed, text.trusted_at(at));
    at = next;
  }
  return result;
}

}  // namespace

bool is_letter(char32_t c) noexcept {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_cased(char32_t c) noexcept {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

Text to_upper(const Text& text) {
  return rewrite(text, [](char32_t) { return Letter::upper; });
}

Text to_lower(const Text& text) {
  return rewrite(text, [](char32_t) { return Letter::lower; });
}

Text capitalize(const Text& text) {
  return rewrite(text, [first = true](char32_t) mutable {
    return std::exchange(first, false) ? Letter::title : Letter::lower;
  });
}

Text to_title(const Text& text) {
  return rewrite(text, [inside = false](char32_t c) mutable {
    return std::exchange(inside, is_cased(c)) ? Letter::lower : Letter::title;
  });
}

Text title_filter(const Text& text) {
  return rewrite(text, [first = true](char32_t c) mutable {
    const bool separates =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                        std::string_view::npos);
    return std::exchange(first, separates) ? Letter::upper : Letter::lower;
  });
}

}  // namespace switchyard::text::jinja
