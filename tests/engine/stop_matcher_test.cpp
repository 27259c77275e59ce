// SPDX-License-Identifier: Apache-2.0
// Stop strings: over token boundaries, with hold-back, and independent of how the text is cut.
#include "engine/stop_matcher.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::engine {
namespace {

/// Pushes pieces; gives what came out after each, and the state of the match.
struct Played {
  std::vector<std::string> out;
  bool stopped = false;
  std::string all;
};

Played play(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Played played;
  for (const std::string& piece : pieces) {
    std::string out;
    played.stopped = matcher.push(piece, out);
    played.out.push_back(out);
    played.all += out;
    if (played.stopped) return played;
  }
  std::string out;
  matcher.finish(out);
  played.out.push_back(out);
  played.all += out;
  return played;
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  const Played played = play({}, {"a", "", "bc"});
  EXPECT_EQ(played.out, (std::vector<std::string>{"a", "", "bc", ""}));
  EXPECT_FALSE(played.stopped);
}

TEST(StopMatcher, HoldsBackAStopOverThreeTokens) {
  const Played played = play({"</answer>"}, {"yes </", "ans", "wer> and more"});
  EXPECT_EQ(played.out, (std::vector<std::string>{"yes ", "", ""}));
  EXPECT_TRUE(played.stopped);
}

TEST(StopMatcher, LetsGoWhenTheStopDoesNotCome) {
  const Played played = play({"</answer>"}, {"yes </", "ans", "wers", "!"});
  EXPECT_EQ(played.out, (std::vector<std::string>{"yes ", "", "</answers", "!", ""}));
  EXPECT_FALSE(played.stopped);
}

TEST(StopMatcher, HeldTextComesOutAtTheEnd) {
  const Played played = play({"###"}, {"a#", "#"});
  EXPECT_EQ(played.out, (std::vector<std::string>{"a", "", "##"}));
}

TEST(StopMatcher, HoldsTheLongestBeginningOnly) {
  // "aab" after "aaa": the last two letters may still become a stop, the first may not.
  const Played played = play({"aab"}, {"aaa", "b"});
  EXPECT_EQ(played.out, (std::vector<std::string>{"a", ""}));
  EXPECT_TRUE(played.stopped);
}

TEST(StopMatcher, TheMatchThatEndsFirstWins) {
  EXPECT_EQ(play({"world", "o w"}, {"hello world"}).all, "hell");
  EXPECT_EQ(play({"ello world", "o"}, {"hello world"}).all, "hell");
}

TEST(StopMatcher, OfTwoThatEndTogetherTheLongerWins) {
  EXPECT_EQ(play({"d", "world"}, {"hello world"}).all, "hello ");
  EXPECT_EQ(play({"world", "d"}, {"hello world"}).all, "hello ");
}

TEST(StopMatcher, WholeCharactersOnly) {
  // Both stops share leading bytes with other characters of the text.
  const Played played =
      play({"\u00e9t", "\U0001F600!"}, {"\u00e8\u00e9", "\U0001F601\U0001F600", "?"});
  EXPECT_EQ(played.out,
            (std::vector<std::string>{"\u00e8", "\u00e9\U0001F601", "\U0001F600?", ""}));
}

TEST(StopMatcher, ResultDoesNotDependOnTheCut) {
  const std::vector<std::string> stops{"abab", "bb", "cabc"};
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int j = 0; j < 14; ++j) text += static_cast<char>('a' + random() % 3);
    std::vector<std::string> bytes, pieces;
    for (const char c : text) bytes.emplace_back(1, c);
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 5;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    const Played by_byte = play(stops, bytes), by_piece = play(stops, pieces);
    ASSERT_EQ(by_byte.all, by_piece.all) << text;
    ASSERT_EQ(by_byte.stopped, by_piece.stopped) << text;
    for (const std::string& stop : stops) ASSERT_EQ(by_byte.all.find(stop), std::string::npos);
  }
}

TEST(StopMatcher, TheStopStringMayBeIncluded) {
  StopMatcher matcher({"stop", "op!"}, true);
  std::string out;
  EXPECT_FALSE(matcher.push("go st", out));
  EXPECT_EQ(out, "go ");
  EXPECT_TRUE(matcher.push("op and on", out));
  EXPECT_EQ(out, "go stop");
}

}  // namespace
}  // namespace switchyard::engine
