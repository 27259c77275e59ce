// SPDX-License-Identifier: Apache-2.0
// What stands beside the tokenizer's file: BOS and EOS, and tokens that only those files name.
#include "text/tokenizer_config.h"

#include "text/tiny.h"

namespace switchyard::text {
namespace {

TokenizerConfig config(const std::string& json, const std::string& map = "",
                       const std::string& added = "") {
  return parse_tokenizer_config({json, map, added}).value();
}

constexpr const char* kEnds = R"([{"id":5,"content":"<s>","special":true},)"
                              R"({"id":6,"content":"</s>","special":true}])";
constexpr const char* kTemplate =
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],)"
    R"("special_tokens":{"<s>":{"ids":[5]}}})";

TEST(TokenizerConfigTest, PostProcessorHoldsWhereTheConfigIsSilent) {
  const auto tokenizer = made({.added = kEnds, .post_processor = kTemplate},
                              config(R"({"bos_token":"<s>","eos_token":{"content":"</s>"}})"));
  EXPECT_EQ(encode(*tokenizer, "ab"), (Ids{5, 3}));
  EXPECT_EQ(encode(*tokenizer, "ab", {.add_special_tokens = false}), (Ids{3}));
  EXPECT_EQ(tokenizer->bos_id(), 5);
  EXPECT_EQ(tokenizer->eos_id(), 6);
}

TEST(TokenizerConfigTest, AddBosAndAddEosOverrideThePostProcessor) {
  const std::string names = R"("bos_token":"<s>","eos_token":"</s>")";
  const Tiny with{.added = kEnds, .post_processor = kTemplate}, without{.added = kEnds};
  const auto ids = [&](const Tiny& tiny, const std::string& flags) {
    return encode(*made(tiny, config("{" + flags + names + "}")), "ab");
  };
  EXPECT_EQ(ids(with, R"("add_bos_token":false,)"), (Ids{3}));
  EXPECT_EQ(ids(with, R"("add_eos_token":true,)"), (Ids{5, 3, 6}));
  EXPECT_EQ(ids(with, R"("add_bos_token":null,)"), (Ids{5, 3}));
  // DeepSeek's files: the post-processor adds nothing, the config asks for BOS.
  EXPECT_EQ(ids(without, R"("add_bos_token":true,"add_eos_token":false,)"), (Ids{5, 3}));
}

TEST(TokenizerConfigTest, AddBosWithoutBosIsRefused) {
  for (const char* json :
       {R"({"add_bos_token":true})", R"({"add_bos_token":true,"bos_token":"<?>"})"}) {
    const auto loaded = load({}, config(json));
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Code::bad_file);
    EXPECT_NE(loaded.error().message.find("add_bos_token"), std::string::npos);
  }
}

TEST(TokenizerConfigTest, AddsTokensOfTheConfig) {
  const auto tokenizer =
      made({}, config(R"({"added_tokens_decoder":{"5":{"content":"<think>","special":false},)"
                      R"("6":{"content":"<end>","special":true}}})"));
  EXPECT_EQ(encode(*tokenizer, "a<think>b<end>"), (Ids{0, 5, 1, 6}));
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->decode(Ids{5, 6}, {}), "<think>");
  EXPECT_EQ(tokenizer->decode(Ids{5, 6}, {.skip_special_tokens = false}), "<think><end>");
}

TEST(TokenizerConfigTest, AddsTokensOfTheOldFiles) {
  const auto tokenizer =
      made({}, config("", R"({"additional_special_tokens":["<x>","c"]})", R"({"<x>":5,"<y>":6})"));
  EXPECT_EQ(encode(*tokenizer, "<x><y>"), (Ids{5, 6}));
  EXPECT_TRUE(tokenizer->is_special(5));
  EXPECT_FALSE(tokenizer->is_special(6));
  // A word of the vocabulary with a role is special too.
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_EQ(encode(*tokenizer, "abc"), (Ids{3, 2}));
}

TEST(TokenizerConfigTest, ClashesAreRefused) {
  const auto loaded =
      load({.added = kEnds}, config(R"({"added_tokens_decoder":{"9":{"content":"<s>"}}})"));
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("another file says 5"), std::string::npos);
}

TEST(TokenizerConfigTest, DamagedFilesAreRefused) {
  for (const char* json :
       {"[", R"({"add_bos_token":"yes"})", R"({"added_tokens_decoder":[]})",
        R"({"added_tokens_decoder":{"x":{"content":"<s>"}}})",
        R"({"added_tokens_decoder":{"99999999999999999999":{"content":"<s>"}}})"}) {
    const auto parsed = parse_tokenizer_config({json, "", ""});
    ASSERT_FALSE(parsed.ok()) << json;
    EXPECT_EQ(parsed.error().code, Code::bad_file);
    EXPECT_NE(parsed.error().message.find("tokenizer_config.json"), std::string::npos);
  }
  EXPECT_FALSE(parse_tokenizer_config({"", "", R"({"<x>":"5"})"}).ok());
}

TEST(OpenTokenizer, NamesWhatItLooksFor) {
  const auto opened = open_tokenizer("/nonexistent");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::bad_file);
  EXPECT_NE(opened.error().message.find("tokenizer.json, tokenizer.model"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::text
