// SPDX-License-Identifier: Apache-2.0
// TokenModel: the core of a tokenizer, from one piece of text to ids of its vocabulary.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace switchyard::text {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of `piece` (valid UTF-8).
  virtual Status tokenize(std::string_view piece, std::vector<int32_t>& out) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

/// Reads the "model" of a tokenizer.json: BPE or Unigram.
Result<std::unique_ptr<TokenModel>> make_token_model(const Json& json, const std::string& where);

}  // namespace switchyard::text
