// SPDX-License-Identifier: Apache-2.0
// Parts of the pipeline that the goldens do not reach.
#include "base/files.h"
#include "text/byte_level.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_proto.h"
#include "text/tiny.h"

namespace switchyard::text {
namespace {

/// What each token of a running decode makes certain, and at the end what was held back.
std::vector<std::string> streamed(const Tokenizer& tokenizer, const Ids& ids) {
  DecodeStream stream(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(stream.push(id));
  parts.push_back(stream.finish());
  return parts;
}
using Parts = std::vector<std::string>;

TEST(EncodeTest, SpecialTokensInTheTextCanStayText) {
  const auto tokenizer = made({.model = R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[]})",
                               .added = R"([{"id":5,"content":"ab","special":true},)"
                                        R"({"id":6,"content":"<t>","special":false}])"});
  EXPECT_EQ(encode(*tokenizer, "ab<t>"), (Ids{5, 6}));
  EXPECT_EQ(encode(*tokenizer, "ab<t>", {.parse_special = false}), (Ids{0, 1, 6}));
}

TEST(EncodeTest, SpecialTokensInPlainRangesStayText) {
  const auto tokenizer = made({.added = R"([{"id":5,"content":"ba","special":true}])"});
  const ByteRange plain[] = {{0, 2}, {5, 6}};  // the first, and one byte of the third
  EXPECT_EQ(encode(*tokenizer, "bababa", {.plain = plain}), (Ids{1, 0, 5, 1, 0}));
  EXPECT_EQ(encode(*tokenizer, "bababa"), (Ids{5, 5, 5}));
  const ByteRange all[] = {{0, 6}};
  EXPECT_EQ(encode(*tokenizer, "bababa", {.plain = all}), (Ids{1, 3, 3, 0}));
}

TEST(EncodeTest, BpeTakesTheLowestRankThenTheLeftmost) {
  const auto tokenizer = made(
      {.model =
           R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ba":3,"aba":4},"merges":["b a","a b","a ba"]})"});
  EXPECT_EQ(encode(*tokenizer, "aba"), (Ids{4}));
  EXPECT_EQ(encode(*tokenizer, "abab"), (Ids{4, 1}));
  EXPECT_EQ(encode(*tokenizer, "bab"), (Ids{3, 1}));
}

TEST(EncodeTest, BpeWithPrefixAndSuffix) {
  const auto tokenizer = made(
      {.model =
           R"({"type":"BPE","continuing_subword_prefix":"##","end_of_word_suffix":"$",)"
           R"("vocab":{"a":0,"##b":1,"##c$":2,"ab":3,"abc$":4},"merges":["a ##b","ab ##c$"]})"});
  EXPECT_EQ(encode(*tokenizer, "abc"), (Ids{4}));
}

TEST(EncodeTest, MetaspaceFirstMarksTheFirstCharacterOfTheInputAlone) {
  const Tiny tiny{
      .model = R"({"type":"BPE","vocab":{"a":0,"▁":1,"▁a":2},"merges":["▁ a"]})",
      .added = R"([{"id":3,"content":"<t>"}])",
      .pre_tokenizer = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"})"};
  EXPECT_EQ(encode(*made(tiny), "a<t>a a"), (Ids{2, 3, 0, 2}));
  EXPECT_EQ(encode(*made(tiny), "<t>a"), (Ids{3, 0}));
  Tiny stripped = tiny;
  stripped.normalizer = R"({"type":"Strip"})";
  EXPECT_EQ(encode(*made(stripped), "  a "), (Ids{0}));  // its first character is not the input's
  Tiny old = tiny;
  old.pre_tokenizer = R"({"type":"Metaspace","replacement":"▁","add_prefix_space":false})";
  EXPECT_EQ(encode(*made(old), "a a"), (Ids{0, 2}));
}

TEST(DecodeTest, WithoutADecoderTokensAreJoinedBySpaces) {
  EXPECT_EQ(streamed(*made({.decoder = "null"}), {0, 4, 99, 1}),
            (Parts{"a", " abc", "", " b", ""}));
}

TEST(DecodeTest, ByteLevelHoldsHalfACharacter) {
  std::string vocab;
  int next = 0;
  for (const char* byte : {"\xE4", "\xBD", "\xA0", "a"}) {
    vocab += fmt::format("{}\"{}\":{}", next > 0 ? "," : "", to_byte_alphabet(byte), next);
    ++next;
  }
  const auto tokenizer = made({.model = R"({"type":"BPE","vocab":{)" + vocab + R"(},"merges":[]})",
                               .decoder = R"({"type":"ByteLevel"})"});
  EXPECT_EQ(streamed(*tokenizer, {0, 1, 2, 3}), (Parts{"", "", "你", "a", ""}));
  EXPECT_EQ(streamed(*tokenizer, {0, 1}), (Parts{"", "", "\uFFFD"}));
  EXPECT_EQ(streamed(*tokenizer, {0, 3}), (Parts{"", "\uFFFDa", ""}));
}

TEST(DecodeTest, ByteFallbackHoldsARunOfBytes) {
  const auto tokenizer = made(
      {.model = R"({"type":"BPE","vocab":{"<0xE4>":0,"<0xBD>":1,"<0xA0>":2,"▁a":3},"merges":[]})",
       .decoder =
           R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
           R"({"type":"ByteFallback"},{"type":"Fuse"},)"
           R"({"type":"Strip","content":" ","start":1,"stop":0}]})"});
  EXPECT_EQ(streamed(*tokenizer, {3, 0, 1, 2, 3}), (Parts{"a", "", "", "", "你 a", ""}));
  EXPECT_EQ(streamed(*tokenizer, {0, 1}), (Parts{"", "", "\uFFFD\uFFFD"}));
}

TEST(DecodeTest, StripAtTheEndHoldsBackWhatItMayDrop) {
  const auto tokenizer =
      made({.model = R"({"type":"BPE","vocab":{"a":0,"_":1},"merges":[]})",
            .decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)"
                       R"({"type":"Strip","content":"_","start":0,"stop":2}]})"});
  EXPECT_EQ(streamed(*tokenizer, {0, 1, 1, 1, 0, 1}), (Parts{"a", "", "", "_", "__a", "", ""}));
  const auto each = made({.model = R"({"type":"BPE","vocab":{"_a_":0},"merges":[]})",
                          .decoder = R"({"type":"Strip","content":"_","start":1,"stop":1})"});
  EXPECT_EQ(each->decode(Ids{0, 0}, {}), "aa");
}

TEST(ByteLevelTest, AlphabetGoesBothWays) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  std::string back;
  EXPECT_TRUE(from_byte_alphabet(to_byte_alphabet(bytes), back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(to_byte_alphabet(" \n"), "ĠĊ");
  EXPECT_FALSE(from_byte_alphabet("a b", back));
}

const std::string kModel =
    SWITCHYARD_SOURCE_DIR "/tests/golden/tokenizers/sentencepiece_bpe/tokenizer.model";

TEST(SentencePieceTest, ControlSymbolsAndBos) {
  const std::string bytes = read_text_file(kModel, uint64_t{1} << 24).value();
  const auto tokenizer = load_sentencepiece_model(bytes, "tokenizer.model", {}).value();
  const Ids plain = encode(*tokenizer, "a", {.add_special_tokens = false});
  Ids expected = {1};
  expected.insert(expected.end(), plain.begin(), plain.end());
  EXPECT_EQ(encode(*tokenizer, "a"), expected);
  expected.push_back(2);
  EXPECT_EQ(encode(*tokenizer, "a</s>"), expected);
  EXPECT_GT(encode(*tokenizer, "a</s>", {.parse_special = false}).size(), expected.size());
  EXPECT_EQ(tokenizer->decode(expected, {}), "a");
  EXPECT_EQ(tokenizer->decode(expected, {.skip_special_tokens = false}), "<s> a</s>");
}

TEST(SentencePieceTest, DamagedFilesAreRefused) {
  const std::string bytes = read_text_file(kModel, uint64_t{1} << 24).value();
  for (const std::string& damaged :
       {std::string(), std::string("\xFF\xFF\xFF"), std::string("\x0A\x7F"),
        bytes.substr(0, bytes.size() / 2), bytes.substr(0, 100)}) {
    const auto loaded = load_sentencepiece_model(damaged, "tokenizer.model", {});
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Code::bad_file);
    EXPECT_EQ(loaded.error().message.rfind("tokenizer.model: ", 0), 0u) << loaded.error().message;
  }
}

TEST(SentencePieceTest, FactsOfTheNormalizer) {
  const std::string bytes = read_text_file(kModel, uint64_t{1} << 24).value();
  const SentencePieceFacts facts = read_sentencepiece_facts(bytes).value();
  EXPECT_TRUE(facts.adds_dummy_prefix);
  EXPECT_FALSE(facts.removes_extra_white_space);
  EXPECT_FALSE(facts.denormalizes);
  // normalizer_spec {add_dummy_prefix: false}, denormalizer_spec {precompiled_charsmap: "x"}
  const std::string_view wire("\x1A\x02\x18\x00\x2A\x03\x12\x01x", 9);
  const SentencePieceFacts other = read_sentencepiece_facts(wire).value();
  EXPECT_FALSE(other.adds_dummy_prefix);
  EXPECT_TRUE(other.removes_extra_white_space);
  EXPECT_TRUE(other.denormalizes);
}

}  // namespace
}  // namespace switchyard::text
