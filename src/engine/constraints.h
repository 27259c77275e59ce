// SPDX-License-Identifier: Apache-2.0
// Constraints: compiles what requests say of their output, for the vocabulary of the model. The last few are kept, so that a
// client who sends one schema with every request pays for it once.
//
// Threads: compile() from anywhere, on the caller's time; what it returns belongs to the loop.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "switchyard/request.h"

#include "base/result.h"
#include "grammar/matcher.h"
#include "text/tokenizer.h"

namespace switchyard::engine {

class Constraints {
 public:
  static constexpr size_t kKept = 32, kKeptVocabularies = 4;

  /// `tokenizer` must outlive it. V logits, of which the last may be of no token.
  Constraints(const text::Tokenizer& tokenizer, int vocab, std::vector<int32_t> eos_ids);

  /// Null when the output is free. Errors: Code::bad_request, with the place in the schema; Code::unsupported for a vocabulary
  /// that cannot write every ASCII character.
  Result<std::shared_ptr<grammar::Constraint>> compile(const OutputConstraint& constraint,
                                                       const SamplingParams& params);

 private:
  Result<std::shared_ptr<const grammar::TokenTrie>> tokens(const std::vector<int32_t>& shown);

  const text::Tokenizer& tokenizer_;
  const int vocab_;
  const std::vector<int32_t> eos_ids_;

  std::mutex mutex_;
  /// By the special tokens that leave their text; each made for the first request that asks. In practice there are two:
  /// none, and those of the model's tool calls.
  std::vector<std::pair<std::vector<int32_t>, std::shared_ptr<const grammar::TokenTrie>>> tokens_;
  std::vector<std::pair<std::string, std::shared_ptr<grammar::Constraint>>> kept_;  // oldest first
};

}  // namespace switchyard::engine
