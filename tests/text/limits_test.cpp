// SPDX-License-Identifier: Apache-2.0
// Long inputs: a million characters in a few seconds at most, without recursion.
#include <chrono>

#include "text/tiny.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

constexpr size_t kMany = 1'000'000;

/// A work that grows as the square of a million would take hours. Sanitizers get four times as long (CMakeLists.txt).
class Seconds {
 public:
  ~Seconds() {
    EXPECT_LT(std::chrono::steady_clock::now() - start_,
              std::chrono::seconds(30 * SWITCHYARD_SLOWNESS));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

TEST(TokenizerLimits, MillionRepeatedCharactersInBpe) {
  const Seconds limit;
  const auto tokenizer =
      made({.model = R"({"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2},"merges":["a a","aa aa"]})"});
  EXPECT_EQ(encode(*tokenizer, std::string(kMany, 'a')), Ids(kMany / 4, 2));
}

TEST(TokenizerLimits, MillionRepeatedCharactersInUnigram) {
  const Seconds limit;
  const auto tokenizer =
      made({.model = R"({"type":"Unigram","vocab":[["a",-1],["aaa",-1.5],["aaaa",-1.75]]})"});
  EXPECT_EQ(encode(*tokenizer, std::string(kMany, 'a')), Ids(kMany / 4, 2));
}

TEST(TokenizerLimits, MillionRepeatedCharactersInTheDemo) {
  const Seconds limit;
  const auto tokenizer = open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const std::string_view character : {"a", " ", "\n", "7", "!", "\xE4\xBD\xA0"}) {
    std::string text;
    for (size_t i = 0; i < kMany; ++i) text += character;
    const auto ids = (*tokenizer)->encode(text, {});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ((*tokenizer)->decode(*ids, {}), text);
  }
}

TEST(TokenizerLimits, MillionAddedTokens) {
  const Seconds limit;
  const auto tokenizer =
      made({.added = R"([{"id":7,"content":"<x>","lstrip":true,"special":true}])"});
  std::string text;
  for (size_t i = 0; i < kMany; ++i) text += "<x>";
  EXPECT_EQ(encode(*tokenizer, text).size(), kMany);
}

TEST(TokenizerLimits, MillionMarksOnOneLetter) {
  const Seconds limit;
  std::string text = "e";
  for (size_t i = 0; i < kMany / 2; ++i)
    text += "\xCC\x81\xCC\xA3";  // above, below, in wrong order
  const std::string composed = normal_form(text, NormalForm::nfc);
  EXPECT_TRUE(composed.starts_with("\xE1\xBA\xB9\xCC\xA3\xCC\xA3"));  // e with dot below
  EXPECT_EQ(normal_form(composed, NormalForm::nfc), composed);
}

TEST(TokenizerLimits, TextThatIsNoUtf8) {
  const auto tokenizer = made({});
  const auto ids = tokenizer->encode("ab\xFF", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, Code::bad_request);
  EXPECT_NE(ids.error().message.find("byte 2"), std::string::npos) << ids.error().message;
}

}  // namespace
}  // namespace switchyard::text
