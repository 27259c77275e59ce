// SPDX-License-Identifier: Apache-2.0
// Characters inside a JSON string, as bytes: UTF-8 without overlong forms and surrogates, and escapes.
//
// Two ways to spell: `any` takes every spelling that JSON has; `plain` has exactly one for each character (itself, or the
// short escape, or \u00xx with small letters), so that a text can be excluded or matched by its characters alone.
// Source: RFC 8259 section 7; Unicode 15, table 3-7.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regular.h"

namespace switchyard::grammar {

/// Code points low to high.
struct CodeRange {
  uint32_t low = 0, high = 0;
};
using CodeSet = std::vector<CodeRange>;

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

/// Sorted, without overlaps.
CodeSet normalized(CodeSet set);
CodeSet complement(const CodeSet& set);

/// One character of the set, plainly spelled.
void add_characters(Nfa& nfa, const CodeSet& set, int32_t from, int32_t to);
/// One character, spelled anyhow, other than a printable ASCII character that stands for itself.
void add_rare_character(Nfa& nfa, int32_t from, int32_t to);
/// The ranges of printable ASCII that stand for themselves.
inline constexpr CodeRange kSelfSpelled[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7F}};

/// The plain spelling of a text (UTF-8) with quotes around.
std::string plain_string(std::string_view text);

/// A whole string with its quotes, of any characters.
Fragment add_any_string(Nfa& nfa);
Fragment add_plain_string(Nfa& nfa);

}  // namespace switchyard::grammar
