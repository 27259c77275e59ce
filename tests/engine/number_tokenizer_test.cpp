// SPDX-License-Identifier: Apache-2.0
// A model without words says numbers, and takes none for text.
#include "engine/number_tokenizer.h"

#include <gtest/gtest.h>

namespace switchyard::engine {
namespace {

TEST(NumberTokenizer, TokensAreTheirNumbers) {
  const auto tokenizer = make_number_tokenizer(100);
  EXPECT_EQ(tokenizer->vocab_size(), 100);
  text::DecodeStream stream(*tokenizer);
  EXPECT_EQ(stream.push(7) + stream.push(99) + stream.finish(), "7 99 ");
}

TEST(NumberTokenizer, TextIsRefused) {
  const auto ids = make_number_tokenizer(100)->encode("seven", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, Code::bad_request);
  EXPECT_NE(ids.error().message.find("prompt_tokens"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::engine
