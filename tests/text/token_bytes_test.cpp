// SPDX-License-Identifier: Apache-2.0
// Bytes of tokens, joined, are the decoded text: the demonstration model's byte-level vocabulary, and one with byte fallback.
#include "text/token_bytes.h"

#include <set>

#include <gtest/gtest.h>

#include "text/tiny.h"

namespace switchyard::text {
namespace {

TEST(TokenBytes, OfAByteLevelVocabularyMakeItsTexts) {
  const auto tokenizer = *open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo");
  const std::vector<std::string> bytes = token_bytes(*tokenizer);
  ASSERT_EQ(std::ssize(bytes), tokenizer->vocab_size());
  for (const std::string text :
       {"{\"name\": \"caf\u00e9\", \"n\": [1, 2]}", "\u4f60\u597d \U0001F600 x", "\n\n\t  a\\"}) {
    std::string joined;
    const auto ids =
        *tokenizer->encode(text, {.add_special_tokens = false, .parse_special = false});
    for (const int32_t id : ids) joined += bytes[static_cast<size_t>(id)];
    EXPECT_EQ(joined, text);
  }
  std::set<std::string> single;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string& text = bytes[static_cast<size_t>(id)];
    EXPECT_EQ(text.empty(), tokenizer->is_special(id) || tokenizer->token_text(id).empty()) << id;
    if (text.size() == 1) single.insert(text);
  }
  EXPECT_EQ(single.size(), 256u);  // so that every text can be written
}

TEST(TokenBytes, OfByteFallbackAreItsBytes) {
  Tiny tiny;
  tiny.model =
      "{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"\u2581b\":1,\"<0xE4>\":2,\"<"
      "0x0A>\":3,"
      "\"\u2581\":4,\"\u00e9\":5},\"merges\":[]}";
  tiny.decoder =
      "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
      "\"\u2581\"},\"content\":\" \"},"
      "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
      "\",\"start\":1,\"stop\":0}]}";
  const std::vector<std::string> expected{"a", " b", "\xE4", "\n", " ", "\u00e9"};
  EXPECT_EQ(token_bytes(*made(tiny)), expected);
}

}  // namespace
}  // namespace switchyard::text
