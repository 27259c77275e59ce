// SPDX-License-Identifier: Apache-2.0
// Tokenizers of a few tokens, written in the test.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "text/tokenizer_json.h"

namespace switchyard::text {

using Ids = std::vector<int32_t>;

/// A tokenizer.json of these members, each of which may be left out: then it is a BPE with the
/// vocabulary a b c ab abc and no other part.
struct Tiny {
  std::string model =
      R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":["a b",["ab","c"]]})";
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"Fuse"})";

  std::string json() const {
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added +
           R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":)" + post_processor + R"(,"decoder":)" + decoder + R"(,"model":)" +
           model + "}";
  }
};

inline Result<std::unique_ptr<Tokenizer>> load(const Tiny& tiny,
                                               const TokenizerConfig& config = {}) {
  return load_tokenizer_json(tiny.json(), "tokenizer.json", config);
}

/// The tokenizer, which must load.
inline std::unique_ptr<Tokenizer> made(const Tiny& tiny, const TokenizerConfig& config = {}) {
  auto loaded = load(tiny, config);
  if (!loaded.ok()) throw ResultError(loaded.error());
  return *std::move(loaded);
}

inline Ids encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  return tokenizer.encode(text, options).value();
}

/// Expects a refusal with this code whose message holds this text.
inline void expect_refused(const Tiny& tiny, Code code, const std::string& words) {
  const auto loaded = load(tiny);
  ASSERT_FALSE(loaded.ok()) << words;
  EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
  EXPECT_NE(loaded.error().message.find(words), std::string::npos) << loaded.error().message;
  EXPECT_EQ(loaded.error().message.rfind("tokenizer.json", 0), 0u) << loaded.error().message;
}

}  // namespace switchyard::text
