// SPDX-License-Identifier: Apache-2.0
// The goldens of tests/golden/tokenizers: texts, expected ids, expected decoded texts.
#pragma once
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace switchyard::text {

struct GoldenTokenizer {
  std::string name;
  std::string folder;     ///< where its file lies
  std::string reference;  ///< "tokenizers" or "sentencepiece"
  std::string cases;      ///< path of its cases
  std::optional<int32_t> bos, eos;
};

struct GoldenCase {
  std::optional<std::string> text;  ///< nothing: the case only decodes
  std::vector<int32_t> ids, plain_ids;
  std::string decoded, decoded_skip;
};

/// Keeps failure messages short.
inline void PrintTo(const GoldenTokenizer& tokenizer, std::ostream* out) { *out << tokenizer.name; }

std::vector<GoldenTokenizer> read_golden_tokenizers();
std::vector<GoldenCase> read_golden_cases(const GoldenTokenizer& tokenizer);

}  // namespace switchyard::text
