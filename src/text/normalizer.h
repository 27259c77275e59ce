// SPDX-License-Identifier: Apache-2.0
// Normalizer: the text between added tokens is rewritten before it is split.
// Kinds: NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace, Sequence.
#pragma once
#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace switchyard::text {

/// A part of the input on its way through the pipeline.
struct Piece {
  std::string text;
  bool at_start = false;  ///< its first character stems from the first one of the whole input
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Status apply(Piece& piece) const = 0;
};

/// `where` is the path of `json` for messages.
Result<std::unique_ptr<Normalizer>> make_normalizer(const Json& json, const std::string& where);

}  // namespace switchyard::text
