// SPDX-License-Identifier: Apache-2.0
// Every golden of every tokenizer: encoding with and without special tokens, decoding with and
// without them, and token by token.
#include <gtest/gtest.h>

#include "text/golden_case.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

class TokenizerGolden : public testing::TestWithParam<GoldenTokenizer> {
 protected:
  void SetUp() override {
    auto opened = open_tokenizer(GetParam().folder);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    tokenizer_ = *std::move(opened);
    cases_ = read_golden_cases(GetParam());
    ASSERT_GT(cases_.size(), 100u);
  }

  std::vector<int32_t> encode(const std::string& text, bool with_special) const {
    // The sentencepiece goldens were made without any search for special tokens.
    const bool parse = GetParam().reference == "tokenizers";
    auto ids = tokenizer_->encode(
        text, {.add_special_tokens = with_special && parse, .parse_special = parse});
    EXPECT_TRUE(ids.ok()) << ids.error().message;
    return ids.ok() ? *ids : std::vector<int32_t>();
  }

  std::string stream(const std::vector<int32_t>& ids, bool skip) const {
    DecodeStream decoding(*tokenizer_, {.skip_special_tokens = skip});
    std::string out;
    for (const int32_t id : ids) {
      const std::string piece = decoding.push(id);
      EXPECT_EQ(find_invalid_utf8(piece), std::nullopt);
      out += piece;
    }
    return out + decoding.finish();
  }

  /// The ids of the sentencepiece goldens hold no special tokens.
  static const std::string& skipped(const GoldenCase& one) {
    return GetParam().reference == "tokenizers" ? one.decoded_skip : one.decoded;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<GoldenCase> cases_;
};

TEST_P(TokenizerGolden, Encodes) {
  for (const GoldenCase& one : cases_) {
    if (!one.text) continue;
    EXPECT_EQ(encode(*one.text, true), one.ids) << *one.text;
    EXPECT_EQ(encode(*one.text, false), one.plain_ids) << *one.text;
  }
}

TEST_P(TokenizerGolden, Decodes) {
  for (const GoldenCase& one : cases_) {
    EXPECT_EQ(tokenizer_->decode(one.ids, {.skip_special_tokens = false}), one.decoded);
    EXPECT_EQ(tokenizer_->decode(one.ids, {.skip_special_tokens = true}), skipped(one));
  }
}

TEST_P(TokenizerGolden, DecodesTokenByToken) {
  for (const GoldenCase& one : cases_) {
    EXPECT_EQ(stream(one.ids, false), one.decoded);
    EXPECT_EQ(stream(one.ids, true), skipped(one));
  }
}

TEST(SentencePieceGolden, KnowsBosAndEos) {
  int seen = 0;
  for (const GoldenTokenizer& golden : read_golden_tokenizers()) {
    if (golden.reference != "sentencepiece") continue;
    const auto tokenizer = open_tokenizer(golden.folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->bos_id(), golden.bos);
    EXPECT_EQ((*tokenizer)->eos_id(), golden.eos);
    ++seen;
  }
  EXPECT_EQ(seen, 2);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden, testing::ValuesIn(read_golden_tokenizers()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace switchyard::text
