// SPDX-License-Identifier: Apache-2.0
// Patterns against std::regex (ECMAScript) on random short texts; what is refused.
#include <random>
#include <regex>

#include <gtest/gtest.h>

#include "grammar/accepts.h"
#include "grammar/characters.h"

namespace switchyard::grammar {
namespace {

Result<Grammar> of_pattern(const std::string& pattern) {
  return Grammar::compile(Json(Json::Object{{"type", Json("string")}, {"pattern", Json(pattern)}}));
}

TEST(Pattern, AgreesWithStdRegex) {
  const char* const patterns[] = {"^a$",
                                  "a",
                                  "^a|b",
                                  "^(?:a|b)$",
                                  "^a*b+c?$",
                                  "^[ab]{2}$",
                                  "^[^ab]{1,2}$",
                                  "^(ab|c){2,}$",
                                  "^(a|b)*abb$",
                                  "^\\d+\\.\\d*$",
                                  "b.a",
                                  "^\\w{2}\\W$",
                                  "^(a?){3}$",
                                  "^a{0,2}b$",
                                  "^[a-c]+?$",
                                  "^$",
                                  "",
                                  "^[\\d-]+$",
                                  "^\\[a\\]$",
                                  "^(a(b(c)?)?)?$",
                                  "^[.]$",
                                  "c$",
                                  "^(|a)b$",
                                  "^\\x61\\u0062$"};
  std::mt19937 random(7);
  for (const std::string pattern : patterns) {
    const auto grammar = of_pattern(pattern);
    if (pattern == "^a|b") {  // an anchor of one alternative
      EXPECT_FALSE(grammar.ok());
      continue;
    }
    ASSERT_TRUE(grammar.ok()) << pattern << "\n" << grammar.error().message;
    const std::regex expected(pattern);
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (size_t n = random() % 6; n > 0; --n) text += "aaabbbccc10.-[]_ \"\\"[random() % 19];
      EXPECT_EQ(accepts(*grammar, plain_string(text)), std::regex_search(text, expected))
          << pattern << " on " << text;
    }
  }
}

TEST(Pattern, CountsCharactersNotBytes) {
  const Grammar grammar = *of_pattern("^.[^\u00e9]\u4f60$");
  EXPECT_TRUE(accepts(grammar, "\"\u00e9\u00ea\u4f60\""));
  EXPECT_FALSE(accepts(grammar, "\"\u00e9\u00e9\u4f60\""));
  EXPECT_FALSE(accepts(grammar, "\"\xc3\u00ea\u4f60\""));
}

TEST(Pattern, SpellsControlsAsEscapes) {
  const Grammar grammar = *of_pattern("^\\s\\x01\"$");
  EXPECT_TRUE(accepts(grammar, R"("\n\u0001\"")"));
  EXPECT_FALSE(accepts(grammar, "\"\n\\u0001\\\"\""));
}

TEST(Pattern, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {{"(?=a)", "(? other"},
                                                       {"(?<n>a)", "(? other"},
                                                       {"a(?!b)", "(? other"},
                                                       {"\\bx", "\\b"},
                                                       {"\\1", "\\1"},
                                                       {"\\p{L}", "\\p"},
                                                       {"a**", "quantifier"},
                                                       {"*", "in this place"},
                                                       {"(a", "group without )"},
                                                       {"a)", ") without"},
                                                       {"[a", "[ without ]"},
                                                       {"[z-a]", "range"},
                                                       {"a{2,1}", "m above n"},
                                                       {"a{5000}", "4096"},
                                                       {"a{,3}", "{ without"},
                                                       {"a$b", "$ before"},
                                                       {"a^b", "^ in this place"},
                                                       {"\\", "backslash"},
                                                       {"\\xg", "hexadecimal"},
                                                       {"\\ud800", "surrogate"},
                                                       {"^a|b$", "beside |"}};
  for (const auto& [pattern, words] : cases) {
    const auto grammar = of_pattern(pattern);
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_NE(grammar.error().message.find(words), std::string::npos) << pattern << "\n"
                                                                      << grammar.error().message;
    EXPECT_EQ(grammar.error().message.find("#/pattern"), 0u);
  }
}

}  // namespace
}  // namespace switchyard::grammar
