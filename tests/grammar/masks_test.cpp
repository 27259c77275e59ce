// SPDX-License-Identifier: Apache-2.0
// Masks and matchers by hand: tokens that straddle structure, characters in halves, ends, rollback, forgetting, depth.
#include <numeric>

#include <gtest/gtest.h>

#include "grammar/accepts.h"
#include "grammar/matcher.h"

namespace switchyard::grammar {
namespace {

/// A vocabulary of these texts; the last token ends.
class Fixture {
 public:
  Fixture(Grammar grammar, std::vector<std::string> texts, size_t max_bytes = Constraint::kMaxBytes)
      : texts_(std::move(texts)) {
    texts_.emplace_back();
    tokens_ = std::make_shared<const TokenTrie>(texts_, std::vector<int32_t>{end()});
    constraint_ = std::make_shared<Constraint>(std::move(grammar), tokens_, max_bytes);
  }
  int32_t end() const { return static_cast<int32_t>(texts_.size()) - 1; }
  Matcher matcher() const { return Matcher(constraint_); }
  Constraint& constraint() const { return *constraint_; }
  int32_t id(const std::string& text) const {
    return static_cast<int32_t>(std::find(texts_.begin(), texts_.end(), text) - texts_.begin());
  }
  /// The texts that may come next; "." is the end.
  std::string allowed(Matcher& matcher) const {
    std::string all;
    const auto mask = matcher.allowed();
    for (int32_t token = 0; token <= end(); ++token)
      if (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1)
        all +=
            (all.empty() ? "" : " ") + (token == end() ? "." : texts_[static_cast<size_t>(token)]);
    return all;
  }

 private:
  std::vector<std::string> texts_;
  std::shared_ptr<const TokenTrie> tokens_;
  std::shared_ptr<Constraint> constraint_;
};

TEST(TokenTrie, IsAPreorderOfAllBytes) {
  const TokenTrie trie({"b", "ab", "", "a", "ab", "abc", "xyz"}, {2});
  EXPECT_EQ(trie.size(), 1 + 3 + 1 + 3);
  EXPECT_EQ(trie.longest(), 3);
  EXPECT_EQ(trie.skip(0), trie.size());
  EXPECT_EQ(trie.byte(1), 'a');
  EXPECT_EQ(trie.skip(1), 4);
  ASSERT_EQ(trie.tokens(1).size(), 1u);
  EXPECT_EQ(trie.tokens(1)[0], 3);
  EXPECT_EQ(trie.tokens(2).size(), 2u);  // "ab" twice
  EXPECT_EQ(trie.byte(4), 'b');
  EXPECT_TRUE(trie.tokens(5).empty());  // "x" is no token
  EXPECT_TRUE(trie.is_end(2));
}

TEST(Masks, TokensStraddleStructure) {
  const Fixture is(compiled(R"({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                                "required": ["a", "b"]})"),
                   {"{\"", "{\"a\":", "{\"a\": 1", "{\"b\":", "1, \"b\":\"", "1,\"b\": ", "2}",
                    "\"", "x\"}", "x\"}}", "a\": 12"});
  Matcher matcher = is.matcher();
  EXPECT_EQ(is.allowed(matcher), "{\" {\"a\": {\"a\": 1");
  ASSERT_TRUE(matcher.accept(is.id("{\"")));
  EXPECT_EQ(is.allowed(matcher), "a\": 12");
  matcher.rollback(1);
  ASSERT_TRUE(matcher.accept(is.id("{\"a\":")));
  EXPECT_EQ(is.allowed(matcher), "1, \"b\":\" 1,\"b\": ");
  ASSERT_TRUE(matcher.accept(is.id("1, \"b\":\"")));
  EXPECT_EQ(is.allowed(matcher), "{\" 2} \" x\"}");  // within a string, {" ends it and 2} is text
  EXPECT_FALSE(matcher.accept(is.end()));
  ASSERT_TRUE(matcher.accept(is.id("x\"}")));
  EXPECT_EQ(is.allowed(matcher), ".");
  EXPECT_TRUE(matcher.must_end());
  EXPECT_TRUE(matcher.accept(is.end()));
  EXPECT_EQ(is.allowed(matcher), "");
  EXPECT_TRUE(matcher.must_end());
}

TEST(Masks, CharactersMayBeSplitOverTokens) {
  const Fixture is(
      compiled(R"({"type": "string", "maxLength": 1})"),
      {"\"", "\xe4", "\xe4\xbd", "\xbd", "\xa0", "\xbd\xa0\"", "\xc0", "\xed\xa0", "a"});
  Matcher matcher = is.matcher();
  ASSERT_TRUE(matcher.accept(is.id("\"")));
  EXPECT_EQ(is.allowed(matcher), "\" \xe4 \xe4\xbd a");
  ASSERT_TRUE(matcher.accept(is.id("\xe4")));
  EXPECT_EQ(is.allowed(matcher), "\xbd \xa0 \xbd\xa0\"");
  EXPECT_FALSE(matcher.can_end());
  ASSERT_TRUE(matcher.accept(is.id("\xbd\xa0\"")));
  EXPECT_TRUE(matcher.must_end());
}

TEST(Masks, EndIsAllowedExactlyWhereTheTextMayEnd) {
  const Fixture is(compiled(R"({"type": "integer", "maximum": 20})"), {"1", "2", "0", "-"});
  Matcher matcher = is.matcher();
  EXPECT_EQ(is.allowed(matcher), "1 2 0 -");
  ASSERT_TRUE(matcher.accept(is.id("2")));
  EXPECT_EQ(is.allowed(matcher), "0 .");
  EXPECT_TRUE(matcher.can_end());
  EXPECT_FALSE(matcher.must_end());
  ASSERT_TRUE(matcher.accept(is.id("0")));
  EXPECT_EQ(is.allowed(matcher), ".");
}

TEST(Masks, CountedStringsShareMasksAndStayExact) {
  const Fixture is(compiled(R"({"type": "string", "minLength": 2, "maxLength": 40})"),
                   {"\"", "aaa", "a", "aa\"", "\\n\\n"});
  Matcher matcher = is.matcher();
  ASSERT_TRUE(matcher.accept(0));
  EXPECT_EQ(is.allowed(matcher), "aaa a aa\" \\n\\n");
  for (int i = 0; i < 38; ++i) ASSERT_TRUE(matcher.accept(is.id("a")));
  EXPECT_EQ(is.allowed(matcher), "\" a aa\" \\n\\n");
  ASSERT_TRUE(matcher.accept(is.id("a")));
  EXPECT_EQ(is.allowed(matcher), "\" a");
  ASSERT_TRUE(matcher.accept(is.id("a")));
  EXPECT_EQ(is.allowed(matcher), "\"");
}

TEST(Masks, DepthHoldsBackWhatCouldNotClose) {
  const Fixture is(compiled("{}"), {"[", "[[", "[[[[[[[[", "]", "{\"", "1", "\"", ":"});
  Matcher matcher = is.matcher();
  for (int depth = 0; depth < 100; ++depth) {
    is.allowed(matcher);
    if (!matcher.accept(is.id("["))) break;
  }
  const std::string allowed = is.allowed(matcher);
  EXPECT_EQ(allowed.find("["), std::string::npos) << allowed;
  const auto opened = std::ssize(matcher.tokens());
  EXPECT_EQ(opened, kMaxDepth + 1);
  for (int64_t i = 0; i < opened; ++i) ASSERT_TRUE(matcher.accept(is.id("]")));
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, RefusesAndChangesNothing) {
  const Fixture is(compiled(R"({"type": "null"})"), {"nu", "ll", "x", ""});
  Matcher matcher = is.matcher();
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(100));
  EXPECT_FALSE(matcher.accept(is.id("x")));
  EXPECT_FALSE(matcher.accept(3));  // has no bytes
  EXPECT_FALSE(matcher.accept(is.end()));
  ASSERT_TRUE(matcher.accept(is.id("nu")));
  ASSERT_TRUE(matcher.accept(is.id("ll")));
  ASSERT_TRUE(matcher.accept(is.end()));
  EXPECT_FALSE(matcher.accept(is.id("nu")));
  EXPECT_FALSE(matcher.accept(is.end()));
  matcher.rollback(2);
  EXPECT_EQ(is.allowed(matcher), "ll");
  matcher.rollback(1);
  EXPECT_EQ(is.allowed(matcher), "nu");
}

TEST(Matcher, ForgettingChangesNothing) {
  const std::vector<std::string> texts{"[", "]", ",", "1", "\"", "a", "{\"", "\":", "}"};
  const Fixture small(compiled("{}"), texts, 2'000), large(compiled("{}"), texts);
  Matcher a = small.matcher(), b = large.matcher();
  for (const char* text :
       {"[", "{\"", "a", "\":", "[", "1", ",", "\"", "a", "\"", "]", "}", ",", "1", "]"}) {
    ASSERT_EQ(small.allowed(a), large.allowed(b));
    ASSERT_TRUE(a.accept(small.id(text)));
    ASSERT_TRUE(b.accept(large.id(text)));
  }
  EXPECT_GT(small.constraint().times(), 0);
  EXPECT_EQ(large.constraint().times(), 0);
  EXPECT_TRUE(a.must_end());
}

}  // namespace
}  // namespace switchyard::grammar
