// SPDX-License-Identifier: Apache-2.0
// Unigram: the segmentation of a piece whose tokens have the largest sum of log-probabilities.
// Viterbi over the n bytes of a piece: n times the longest token at most.
// Reference: Kudo, arXiv:1804.10959.
#pragma once
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json_fields.h"
#include "text/prefix_index.h"
#include "text/token_model.h"

namespace switchyard::text {

class Unigram final : public TokenModel {
 public:
  Status tokenize(std::string_view piece, std::vector<int32_t>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  friend Result<std::unique_ptr<TokenModel>> read_unigram(Fields& fields);

  Status read_pieces(Fields& fields);
  /// The ends of the best tokens, from left to right, unknown neighbours as one.
  Result<std::vector<size_t>> best_ends(std::string_view piece) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;  // [V]
  PrefixIndex index_;
  double unknown_score_ = 0;
  int32_t unknown_id_ = -1;
  bool byte_fallback_ = false;
  std::vector<int32_t> byte_ids_;
};

/// From the "model" of a tokenizer.json.
Result<std::unique_ptr<TokenModel>> read_unigram(Fields& fields);

}  // namespace switchyard::text
