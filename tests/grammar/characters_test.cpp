// SPDX-License-Identifier: Apache-2.0
// Every code point in a plain string; all strings of two bytes; difference of automata.
#include "grammar/characters.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace switchyard::grammar {
namespace {

bool accepts(const Dfa& dfa, std::string_view text) {
  int32_t at = 0;
  for (const char byte : text)
    if (at >= 0) at = dfa.next(at, static_cast<uint8_t>(byte));
  return at >= 0 && dfa.states[static_cast<size_t>(at)].accepts;
}

std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  std::string text;
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const uint32_t leads[] = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(leads[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
  return text;
}

TEST(Characters, EveryCodePointHasOnePlainSpelling) {
  Nfa nfa;
  const Fragment whole = add_plain_string(nfa);
  Budget budget;
  const Dfa dfa = *determinize(nfa, whole, budget);
  for (uint32_t code = 0; code <= kLastCodePoint; ++code) {
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    const std::string raw = "\"" + utf8(code) + "\"";
    const bool itself = code >= 0x20 && code != '"' && code != '\\' && !surrogate;
    ASSERT_EQ(accepts(dfa, raw), itself) << code;
    const bool spelled = accepts(dfa, plain_string(utf8(code)));
    ASSERT_EQ(spelled, !surrogate) << code;
  }
  EXPECT_FALSE(accepts(dfa, R"("\/")"));
  EXPECT_FALSE(accepts(dfa, R"("\u0061")"));
}

TEST(Characters, AnyStringIsUtf8) {
  Nfa nfa;
  const Fragment whole = add_any_string(nfa);
  Budget budget;
  const Dfa dfa = *determinize(nfa, whole, budget);
  for (int a = 0x20; a < 256; ++a) {
    for (int b = 0x20; b < 256; ++b) {
      const std::string inside{static_cast<char>(a), static_cast<char>(b)};
      if (inside.find('"') != std::string::npos || inside[0] == '\\' || inside[1] == '\\') continue;
      ASSERT_EQ(accepts(dfa, '"' + inside + '"'), is_utf8(inside)) << a << " " << b;
    }
  }
}

TEST(Characters, ASetIsWhatItsRangesSay) {
  const CodeSet set{{0x7E, 0x801}, {0xFFFE, 0x10002}, {0x05, 0x05}, {0xD000, 0xE001}};
  Nfa nfa;
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  add_characters(nfa, set, whole.start, whole.end);
  Budget budget;
  const Dfa dfa = *determinize(nfa, whole, budget);
  for (uint32_t code = 0; code <= kLastCodePoint; ++code) {
    bool inside = false;
    for (const CodeRange range : set) inside |= range.low <= code && code <= range.high;
    if (code >= 0xD800 && code <= 0xDFFF) inside = false;
    const std::string quoted = plain_string(utf8(code));
    ASSERT_EQ(accepts(dfa, quoted.substr(1, quoted.size() - 2)), inside) << code;
  }
}

TEST(Regular, SubtractLeavesTheRest) {
  Nfa all, some;
  const Fragment whole{all.add_state(), all.add_state()};
  for (const char* word : {"a", "ab", "abc", "b"}) all.add_literal(whole.start, word, whole.end);
  const Fragment part{some.add_state(), some.add_state()};
  for (const char* word : {"ab", "b", "x"}) some.add_literal(part.start, word, part.end);
  Budget budget;
  const Dfa rest =
      *subtract(*determinize(all, whole, budget), *determinize(some, part, budget), budget);
  for (const char* word : {"a", "abc"}) EXPECT_TRUE(accepts(rest, word)) << word;
  for (const char* word : {"ab", "b", "x", ""}) EXPECT_FALSE(accepts(rest, word)) << word;
}

}  // namespace
}  // namespace switchyard::grammar
