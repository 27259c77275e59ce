// SPDX-License-Identifier: Apache-2.0
// Characters in and out, and the stream that replaces what is broken as Python does.
#include "text/unicode.h"

#include <gtest/gtest.h>

namespace switchyard::text {
namespace {

/// All ways to cut `bytes` in two give the same text.
std::string streamed(std::string_view bytes) {
  std::string whole;
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Utf8Stream stream;
    std::string out;
    stream.push(bytes.substr(0, cut), out);
    EXPECT_EQ(find_invalid_utf8(out), std::nullopt);
    stream.push(bytes.substr(cut), out);
    stream.finish(out);
    if (cut == 0) whole = out;
    EXPECT_EQ(out, whole) << cut;
  }
  return whole;
}

TEST(Utf8StreamTest, ReplacesEachMaximalBrokenPartOnce) {
  const std::string r(kReplacement);
  EXPECT_EQ(streamed("a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80"),
            "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80");
  EXPECT_EQ(streamed("\xE4\xBD"), r);
  EXPECT_EQ(streamed("\xF0\x9F\x98"), r);
  EXPECT_EQ(streamed("\xF0\x9F\x98z"), r + "z");
  EXPECT_EQ(streamed("\xC0\xAF"), r + r);                  // an overlong form
  EXPECT_EQ(streamed("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(streamed("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(streamed("\x80\xFFx"), r + r + "x");
  EXPECT_EQ(streamed("\xE4\xE4\xBD\xA0"), r + "\xE4\xBD\xA0");
}

TEST(Utf8StreamTest, GivesOutACharacterAtOnce) {
  Utf8Stream stream;
  std::string out;
  stream.push("\xE4", out);
  stream.push("\xBD", out);
  EXPECT_EQ(out, "");
  stream.push("\xA0", out);
  EXPECT_EQ(out, "\xE4\xBD\xA0");
}

TEST(UnicodeTest, CharactersGoBothWays) {
  for (const char32_t c :
       {U'a', U'\u00e9', U'\u07ff', U'\u0800', U'\u4f60', U'\U0001F600', U'\U0010FFFF'}) {
    std::string text;
    append_character(text, c);
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt);
    size_t at = 0;
    EXPECT_EQ(next_character(text, at), c);
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(previous_character(text, at), c);
    EXPECT_EQ(at, 0u);
  }
}

TEST(UnicodeTest, NormalForms) {
  EXPECT_EQ(normal_form("e\u0301", NormalForm::nfc), "\u00e9");
  EXPECT_EQ(normal_form("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normal_form("\ufb01\u00b2", NormalForm::nfkc), "fi2");
  EXPECT_EQ(normal_form("\ufb01\u00e9", NormalForm::nfkd), "fie\u0301");
  EXPECT_EQ(normal_form("\ufb01", NormalForm::nfc), "\ufb01");
  EXPECT_EQ(normal_form("\u1112\u1161\u11ab", NormalForm::nfc), "\ud55c");  // Hangul
  EXPECT_EQ(normal_form("\u0958", NormalForm::nfc), "\u0915\u093c");        // never composed
  EXPECT_EQ(normal_form("\u212b", NormalForm::nfc), "\u00c5");
}

TEST(UnicodeTest, Classes) {
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_TRUE(is_numeric(U'\u00bd'));
  EXPECT_TRUE(is_numeric(U'\u0663'));
  EXPECT_FALSE(is_numeric(U'a'));
  EXPECT_TRUE(is_punctuation(U'$'));  // ASCII only: a symbol elsewhere is none
  EXPECT_FALSE(is_punctuation(U'\u20ac'));
  EXPECT_TRUE(is_punctuation(U'\u3002'));
  EXPECT_TRUE(is_word(U'_'));
  EXPECT_TRUE(is_word(U'\u0301'));
  EXPECT_FALSE(is_word(U'-'));
}

TEST(UnicodeTest, LowerCase) {
  std::string out;
  for (const char32_t c : {U'\u0130', U'\u00c9', U'\u03a3', U'z'}) append_lower_case(out, c);
  EXPECT_EQ(out, "i\u0307\u00e9\u03c3z");
}

}  // namespace
}  // namespace switchyard::text
