// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: the adjacent pair of lowest rank is merged, leftmost first, until none is left.
// n log n in the length of a piece, without recursion.
// Reference: Sennrich et al., arXiv:1508.07909.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/json_fields.h"
#include "text/token_model.h"

namespace switchyard::text {

struct BpeOptions {
  std::string unknown;         ///< unk_token; empty: unknown characters leave no token
  std::string prefix;          ///< continuing_subword_prefix
  std::string suffix;          ///< end_of_word_suffix
  bool fuse_unknown = false;   ///< unknown neighbours become one token
  bool byte_fallback = false;  ///< unknown characters become <0xNN> tokens
  bool ignore_merges = false;  ///< a piece that is a token is not split first
};

class Bpe final : public TokenModel {
 public:
  using Merge = std::pair<std::string, std::string>;

  /// Merges are in the order of their ranks.
  static Result<std::unique_ptr<Bpe>> make(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                           BpeOptions options);

  Status tokenize(std::string_view piece, std::vector<int32_t>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Rule {
    int32_t rank;
    int32_t id;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const noexcept;
  };
  struct Word;

  static uint64_t pair_of(int32_t left, int32_t right) noexcept {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  Status add_merge(const Merge& merge, size_t rank);
  /// The characters of a piece as tokens.
  std::vector<int32_t> first_tokens(std::string_view piece) const;
  bool append_bytes(std::string_view character, std::vector<int32_t>& out) const;
  void merge_all(Word& word) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  int32_t unknown_id_ = -1;
  std::vector<int32_t> byte_ids_;  // of <0x00> to <0xFF>; -1 where there is none
  std::unordered_map<uint64_t, Rule, PairHash> rules_;
};

/// The id of <0xNN> for each byte, or -1.
std::vector<int32_t> find_byte_tokens(const Vocabulary& vocabulary);

/// From the "model" of a tokenizer.json.
Result<std::unique_ptr<TokenModel>> read_bpe(Fields& fields);

}  // namespace switchyard::text
