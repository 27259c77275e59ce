// SPDX-License-Identifier: Apache-2.0
// Sampler: chooses the next token of each row of logits. The stages are one ordered list of
// functions (sampler.cpp); each sees one row and what the stages before it have left.
//
//   in    logits [N, V] f32, changed in place
//   out   one Pick per row; where asked for, the logarithms of probabilities by the logits as they came
//   cost  O(V) per row; top-k, top-p and min-p select only as much as they keep and never sort the
//   vocabulary
// A row's pick depends on that row, its sequence and its seed alone: the random number is Philox of
// (seed, position), so the same seed gives the same text whatever else runs. Ties go to the lower
// token. Source: Fan et al. 2018, arXiv 1805.04833 (top-k); Holtzman et al. 2019, arXiv 1904.09751
// (top-p); Nguyen et al. 2024, arXiv 2407.01082 (min-p); Keskar et al. 2019, arXiv 1909.05858
// (repetition penalty).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "switchyard/request.h"

#include "base/threads.h"

namespace switchyard::engine {

/// One row to sample.
struct SampleRow {
  std::span<float> logits;          ///< [V] f32
  std::span<const int32_t> tokens;  ///< the sequence so far: prompt, then output
  int prompt_tokens = 0;            ///< how many of them are prompt
  const SamplingParams* params = nullptr;
  std::span<const int32_t> end_tokens;  ///< masked until params->min_tokens are out
  uint64_t seed = 0;
  std::span<const uint64_t> allowed = {};  ///< [V / 64] a bit per token; empty: all may come
  TokenLogprobs* logprobs = nullptr;       ///< filled where params->logprobs asks for it
};

struct Pick {
  int32_t token = -1;
  bool non_finite = false;    ///< the row held NaN or infinity: there is no token
  bool none_allowed = false;  ///< no token may come: there is none
};

class Sampler {
 public:
  /// Allocates the scratch of every thread that may sample, so that pick() allocates nothing.
  Sampler(int vocab, int max_rows, Pool& pool);
  ~Sampler();

  /// One pick per row; valid until the next call. At most max_rows rows.
  std::span<const Pick> pick(std::span<SampleRow> rows);

  struct Scratch;

 private:
  Pool& pool_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
  std::vector<Pick> picks_;                        // [max_rows]
};

}  // namespace switchyard::engine
