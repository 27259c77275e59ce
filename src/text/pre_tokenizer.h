// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: pieces in, smaller pieces out; each stage sees every piece as a text of its own.
// Kinds: Split, ByteLevel, Metaspace, Digits, Punctuation, WhitespaceSplit, Sequence.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/normalizer.h"

namespace switchyard::text {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Replaces the pieces; empty ones are dropped.
  virtual Status apply(std::vector<Piece>& pieces) const = 0;
};

/// `where` is the path of `json` for messages.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& json,
                                                         const std::string& where);

}  // namespace switchyard::text
