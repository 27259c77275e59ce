// SPDX-License-Identifier: Apache-2.0
// Where the syntax of tokenizer.json differs from PCRE2's, the meaning must be the file's.
#include "text/regex.h"

#include <gtest/gtest.h>

namespace switchyard::text {
namespace {

using Words = std::vector<std::string>;

Words matches(std::string_view pattern, const std::string& text) {
  Words words;
  const std::vector<Span> spans = Regex::compile(pattern).value().find_all(text).value();
  for (const Span& span : spans) {
    words.push_back(text.substr(span.begin, span.end - span.begin));
  }
  return words;
}

Code refusal(std::string_view pattern) {
  const auto regex = Regex::compile(pattern);
  EXPECT_FALSE(regex.ok()) << pattern;
  return regex.ok() ? Code::internal : regex.error().code;
}

TEST(RegexTest, WhiteSpaceIsThePropertyAndNotMore) {
  EXPECT_EQ(matches(R"(\s)", "a\u180eb\u3000c d\u0085"), (Words{"\u3000", " ", "\u0085"}));
  EXPECT_EQ(matches(R"(\S+)", "a\u180eb c"), (Words{"a\u180eb", "c"}));
  EXPECT_EQ(matches(R"([^\s]+)", "a\u180eb c"), (Words{"a\u180eb", "c"}));
  EXPECT_EQ(matches(R"([\S\n]+)", "a\u180eb\nc d"), (Words{"a\u180eb\nc", "d"}));
}

TEST(RegexTest, WordsHoldMarks) {
  EXPECT_EQ(matches(R"(\w+)", "e\u0301t_1-x"), (Words{"e\u0301t_1", "x"}));
  EXPECT_EQ(matches(R"(\W+)", "e\u0301t_1-x"), (Words{"-"}));
  EXPECT_EQ(matches(R"(\bx\b)", "x xe\u0301 x\u0301 x"), (Words{"x", "x"}));
}

TEST(RegexTest, IntersectionsOfClasses) {
  // The words of Kimi's pattern: letters, but no Han.
  const std::string kimi =
      R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
      R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)";
  EXPECT_EQ(matches(kimi, "Hello你好world"), (Words{"Hello", "你好", "world"}));
  EXPECT_EQ(matches(R"([a-z&&[aeiou]]+)", "queue!"), (Words{"ueue"}));
}

TEST(RegexTest, IntersectionsThatCannotBeRewrittenAreRefused) {
  for (const char* pattern :
       {"[a&&b]", "[^a&&[b]]", "[a&&[b]&&[c]]", "[&&[a]]", "[a&&[b]c]", "[a[b]]"}) {
    EXPECT_EQ(refusal(pattern), Code::unsupported) << pattern;
  }
}

TEST(RegexTest, LinesIntervalsAndNumbers) {
  EXPECT_EQ(matches("a$", "a\nba"), (Words{"a", "a"}));  // every end of a line
  EXPECT_EQ(matches("^b", "a\nb"), (Words{"b"}));
  EXPECT_EQ(matches("a{,2}b", "aaab"), (Words{"aab"}));
  EXPECT_EQ(matches("a{1,2}", "aaa"), (Words{"aa", "a"}));
  EXPECT_EQ(matches("{x}", "{x}"), (Words{"{x}"}));
  EXPECT_EQ(matches(R"(\h+)", "beef g"), (Words{"beef"}));
  EXPECT_EQ(matches(R"(\u4f60\x41\x{597d})", "你A好"), (Words{"你A好"}));
  EXPECT_EQ(matches("a++b|a?+", "aab"), (Words{"aab"}));
}

TEST(RegexTest, CaseFoldsAsUnicodeDoes) {
  EXPECT_EQ(matches("(?i:'s|'re)", "'S 'rE '\u017f 'x"), (Words{"'S", "'rE", "'\u017f"}));
}

TEST(RegexTest, EmptyMatches) {
  // One at each place, yet none right behind another match.
  EXPECT_EQ(matches("x*", "axxb你"), (Words{"", "xx", "", ""}));
  EXPECT_EQ(matches("x*", ""), (Words{""}));
}

TEST(RegexTest, OtherSyntaxIsRefused) {
  for (const char* pattern : {R"(\K)", R"(\Qa\E)", R"(\R)", "(*UTF)", "(?m:a)", "(?<n>a)", "(?#c)",
                              R"([\W])", R"(\xC3)", "a{2}+", R"(\012)", "(?R)", R"(\pL)"}) {
    EXPECT_EQ(refusal(pattern), Code::unsupported) << pattern;
  }
}

TEST(RegexTest, BrokenPatternsAreRefused) {
  for (const char* pattern :
       {"(", "[a", "a\\", R"(\u12)", R"(\x{110000})", R"(\p{Nonsense})", R"(\p{L)", "*a", "\xFF"}) {
    EXPECT_EQ(refusal(pattern), Code::bad_file) << pattern;
  }
}

}  // namespace
}  // namespace switchyard::text
