// SPDX-License-Identifier: Apache-2.0
// Damaged and foreign tokenizer.json files: each class is refused by name.
#include <chrono>

#include "text/tiny.h"

namespace switchyard::text {
namespace {

std::string vocabulary(const std::string& members) {
  return R"({"type":"BPE","vocab":{)" + members + R"(},"merges":[]})";
}
std::string merges(const std::string& list) {
  return R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":)" + list + "}";
}
std::string added(const std::string& members) { return "[{" + members + "}]"; }

TEST(MalformedTokenizer, TextThatIsNoJson) {
  const auto loaded = load_tokenizer_json("{\"model\":", "tokenizer.json", {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::bad_file);
  EXPECT_NE(loaded.error().message.find("byte"), std::string::npos) << loaded.error().message;
}

TEST(MalformedTokenizer, ModelMissingOrOfWrongType) {
  expect_refused({.model = "null"}, Code::bad_file, "model is missing");
  expect_refused({.model = "[]"}, Code::bad_file, "expected an object, found array");
  expect_refused({.model = R"({"type":"WordPiece","vocab":{}})"}, Code::unsupported, "WordPiece");
  expect_refused({.model = R"({"type":7,"vocab":{}})"}, Code::bad_file, "expected a string");
  expect_refused({.model = R"({"vocab":{}})"}, Code::bad_file, "model.type is missing");
  expect_refused({.model = R"({"type":"BPE","merges":[]})"}, Code::bad_file, "vocab is missing");
  expect_refused({.model = R"({"type":"BPE","vocab":{}})"}, Code::bad_file, "merges is missing");
}

TEST(MalformedTokenizer, VocabularyIdNegative) {
  expect_refused({.model = vocabulary(R"("a":-1)")}, Code::bad_file, "\"a\" has the id -1");
}

TEST(MalformedTokenizer, VocabularyIdHuge) {
  expect_refused({.model = vocabulary(R"("a":4194304)")}, Code::bad_file, "expected 0 to 4194303");
  expect_refused({.model = vocabulary(R"("a":18446744073709551615)")}, Code::bad_file,
                 "expected an id");
  expect_refused({.model = vocabulary(R"("a":1.5)")}, Code::bad_file, "expected an id");
  expect_refused({.model = vocabulary(R"("a":"0")")}, Code::bad_file, "found string");
}

TEST(MalformedTokenizer, VocabularyIdGivenTwice) {
  expect_refused({.model = vocabulary(R"("a":0,"b":0)")}, Code::bad_file, "id 0 is given twice");
}

TEST(MalformedTokenizer, VocabularyTokenGivenTwice) {
  expect_refused({.model = vocabulary(R"("a":0,"a":1)")}, Code::bad_file, "twice");
}

TEST(MalformedTokenizer, VocabularyWithGaps) {
  expect_refused({.model = vocabulary(R"("a":0,"b":5000)")}, Code::bad_file,
                 "4999 of 5001 ids name no token");
  // Published vocabularies leave out a few; such an id leaves no text.
  const auto few = made({.model = vocabulary(R"("a":0,"b":2)")});
  EXPECT_EQ(few->vocab_size(), 3);
  EXPECT_EQ(few->decode(Ids{0, 1, 2}, {}), "ab");
  // An added token may fill them.
  expect_refused({.model = vocabulary(R"("a":0)"), .added = added(R"("id":4100,"content":"x")")},
                 Code::bad_file, "ids name no token");
}

TEST(MalformedTokenizer, MergesMalformed) {
  expect_refused({.model = merges("{}")}, Code::bad_file, "expected an array");
  expect_refused({.model = merges(R"(["ab"])")}, Code::bad_file, "merges[0]");
  expect_refused({.model = merges(R"(["a b","a b c"])")}, Code::bad_file, "merges[1]");
  expect_refused({.model = merges(R"([["a"]])")}, Code::bad_file, "merges[0]");
  expect_refused({.model = merges(R"([["a","b","c"]])")}, Code::bad_file, "merges[0]");
  expect_refused({.model = merges(R"([["a",1]])")}, Code::bad_file, "merges[0]");
  expect_refused({.model = merges("[3]")}, Code::bad_file, "merges[0]");
}

TEST(MalformedTokenizer, MergesOutsideTheVocabulary) {
  expect_refused({.model = merges(R"(["x b"])")}, Code::bad_file, "left side is not in");
  expect_refused({.model = merges(R"(["a x"])")}, Code::bad_file, "right side is not in");
}

TEST(MalformedTokenizer, MergeResultOutsideTheVocabulary) {
  expect_refused({.model = merges(R"(["b a"])")}, Code::bad_file, "result is not in");
  // The result would be longer than any token.
  expect_refused({.model = merges(R"(["ab ab"])")}, Code::bad_file, "result is not in");
}

TEST(MalformedTokenizer, PrefixLongerThanToken) {
  expect_refused(
      {.model = R"({"type":"BPE","continuing_subword_prefix":"##","vocab":{"a":0,"b":1},)"
                R"("merges":["a b"]})"},
      Code::bad_file, "shorter than the continuing_subword_prefix");
}

TEST(MalformedTokenizer, UnknownTokenOutsideTheVocabulary) {
  expect_refused({.model = R"({"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]})"},
                 Code::bad_file, "unk_token \"?\" is not in the vocabulary");
  expect_refused({.model = R"({"type":"Unigram","unk_id":1,"vocab":[["a",0]]})"}, Code::bad_file,
                 "outside the vocabulary");
  expect_refused({.model = R"({"type":"Unigram","unk_id":-2,"vocab":[["a",0]]})"}, Code::bad_file,
                 "outside the vocabulary");
}

TEST(MalformedTokenizer, UnigramPieces) {
  const auto with = [](const std::string& vocab) {
    return Tiny{.model = R"({"type":"Unigram","vocab":)" + vocab + "}"};
  };
  expect_refused(with("{}"), Code::bad_file, "expected an array");
  expect_refused(with("[]"), Code::bad_file, "is empty");
  expect_refused(with(R"([["a"]])"), Code::bad_file, "vocab[0]");
  expect_refused(with(R"([["a","b"]])"), Code::bad_file, "vocab[0]");
  expect_refused(with(R"([["a",0],["a",1]])"), Code::bad_file, "given twice");
  expect_refused(with("[[\"" + std::string(2000, 'a') + "\",0]]"), Code::bad_file, "2000 bytes");
}

TEST(MalformedTokenizer, AddedTokenIdClash) {
  expect_refused({.added = added(R"("id":1,"content":"x")")}, Code::bad_file,
                 "gives this id to \"b\"");
  expect_refused({.added = added(R"("id":7,"content":"a")")}, Code::bad_file, "the id 0");
  expect_refused({.added = R"([{"id":7,"content":"x"},{"id":7,"content":"y"}])"}, Code::bad_file,
                 "also that of \"x\"");
  expect_refused({.added = R"([{"id":7,"content":"x"},{"id":8,"content":"x"}])"}, Code::bad_file,
                 "given twice");
  expect_refused({.added = added(R"("id":-1,"content":"x")")}, Code::bad_file, "expected an id");
  expect_refused({.added = added(R"("content":"x")")}, Code::bad_file, "expected an id");
}

TEST(MalformedTokenizer, AddedTokenEmptyOrOverlong) {
  expect_refused({.added = added(R"("id":7,"content":"")")}, Code::bad_file, "content is empty");
  expect_refused({.added = added(R"("id":7)")}, Code::bad_file, "content is missing");
  expect_refused({.added = added(R"("id":7,"content":")" + std::string(5000, 'x') + "\"")},
                 Code::bad_file, "5000 bytes");
}

TEST(MalformedTokenizer, RegexInvalid) {
  const auto with = [](const std::string& regex) {
    return Tiny{.pre_tokenizer = R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":")" +
                                 regex + R"("}})"};
  };
  expect_refused(with("(a"), Code::bad_file, "no regular expression");
  expect_refused(with("[a"), Code::bad_file, "] is missing");
  expect_refused(with("a\\\\"), Code::bad_file, "lone backslash");
  expect_refused(with("[a&&b]"), Code::unsupported, "&&");
  expect_refused(with(std::string(200, '(') + std::string(200, ')')), Code::bad_file, "nested");
}

TEST(MalformedTokenizer, RegexThatBacktracksWithoutEnd) {
  const auto tokenizer =
      made({.pre_tokenizer =
                R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":"(?:a+)+[cd]"}})"});
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer->encode(std::string(5000, 'a'), {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, Code::bad_request);
  EXPECT_NE(ids.error().message.find("limit"), std::string::npos) << ids.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(MalformedTokenizer, UnknownParts) {
  expect_refused({.normalizer = R"({"type":"Magic"})"}, Code::unsupported, "normalizer \"Magic\"");
  expect_refused({.normalizer = R"({"type":"Precompiled","precompiled_charsmap":"AA=="})"},
                 Code::unsupported, "Precompiled");
  expect_refused({.pre_tokenizer = R"({"type":"Magic"})"}, Code::unsupported,
                 "pre-tokenizer \"Magic\"");
  expect_refused({.post_processor = R"({"type":"Magic"})"}, Code::unsupported, "\"Magic\"");
  expect_refused({.decoder = R"({"type":"CTC"})"}, Code::unsupported, "decoder \"CTC\"");
  expect_refused(
      {.decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteLevel"}]})"},
      Code::unsupported, "behind Fuse");
}

TEST(MalformedTokenizer, UnknownMembers) {
  expect_refused({.normalizer = R"({"type":"NFC","twice":true})"}, Code::unsupported,
                 "normalizer.twice is not known");
  expect_refused({.model = R"({"type":"BPE","vocab":{},"merges":[],"magic":1})"}, Code::unsupported,
                 "model.magic is not known");
  expect_refused({.model = R"({"type":"BPE","vocab":{},"merges":[],"dropout":0.1})"},
                 Code::unsupported, "dropout");
  expect_refused({.added = added(R"("id":7,"content":"x","magic":1)")}, Code::unsupported, "magic");
}

TEST(MalformedTokenizer, PostProcessorDamaged) {
  const auto with = [](const std::string& single, const std::string& specials) {
    return Tiny{.post_processor = R"({"type":"TemplateProcessing","single":)" + single +
                                  R"(,"special_tokens":)" + specials + "}"};
  };
  expect_refused(with("[]", "{}"), Code::bad_file, "lacks the Sequence A");
  expect_refused(with(R"([{"Sequence":{"id":"B"}}])", "{}"), Code::bad_file, "Sequence A once");
  expect_refused(with(R"([{"SpecialToken":{"id":"x"}}])", "{}"), Code::bad_file, "ids of \"x\"");
  expect_refused(with(R"([{"SpecialToken":{"id":"x"}}])", R"({"x":{"ids":[-4]}})"), Code::bad_file,
                 "expected ids");
  expect_refused(with(R"([{}])", "{}"), Code::bad_file, "SpecialToken or Sequence");
}

TEST(MalformedTokenizer, DeepNesting) {
  std::string normalizer = R"({"type":"NFC"})";
  for (int i = 0; i < 100; ++i) {
    normalizer = R"({"type":"Sequence","normalizers":[)" + normalizer + "]}";
  }
  expect_refused({.normalizer = normalizer}, Code::bad_file, "nesting deeper than 64");
}

TEST(MalformedTokenizer, ReplaceThatGrowsWithoutEnd) {
  std::string list;
  for (int i = 0; i < 40; ++i) {
    list += R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"},)";
  }
  list.pop_back();
  const auto tokenizer =
      made({.normalizer = R"({"type":"Sequence","normalizers":[)" + list + "]}"});
  const auto ids = tokenizer->encode("a", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().message.find("Replace"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::text
