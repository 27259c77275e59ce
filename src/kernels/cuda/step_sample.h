// SPDX-License-Identifier: Apache-2.0
// The next token of each row of logits, chosen on the device by the stages of engine/sampler.h: penalties, masks, temperature,
// top-k, top-p, min-p, draw. Greedy rows get the same token as there, bit for bit; draws use the same Philox words and the same
// order of tokens, and differ only where exponentials or sums of f64 round differently at the edge between two tokens. What
// would need more than a sorted list of kMaxBest tokens is left undecided.
#pragma once
#include <cstdint>

struct CUstream_st;

namespace switchyard::cuda {

struct SampleRow {
  uint64_t seed = 0, position = 0;  ///< position: tokens of the sequence so far
  double log_min_p = 0;             ///< ln(min_p), or -infinity
  float temperature = 0, top_p = 1;
  int32_t top_k = 0;  ///< 0: all
  float repetition = 1, presence = 0, frequency = 0;
  int32_t first_seen = 0, num_seen = 0;      ///< of Sample::seen
  int32_t first_masked = 0, num_masked = 0;  ///< of Sample::masked

  friend bool operator==(const SampleRow&, const SampleRow&) = default;
};

/// A token of the sequence; each stands once.
struct SeenToken {
  int32_t token = 0;
  uint32_t in_output = 0;  ///< how often
};

struct Sample {
  static constexpr int kNonFinite = -1;  ///< pick: the row held NaN or infinity
  static constexpr int kUndecided = -2;  ///< pick: the host must choose
  static constexpr int kMaxBest = 1024;  ///< largest top-k

  float* logits = nullptr;  ///< [N, V], changed where there are penalties
  int64_t vocab = 0;
  int rows = 0;
  const SampleRow* row = nullptr;  ///< [N], on the device like all arrays here
  const SeenToken* seen = nullptr;
  const int32_t* masked = nullptr;
  bool adjusts = false;       ///< any row has seen or masked tokens
  bool draws = false;         ///< any row has a temperature above 0
  int32_t* pick = nullptr;    ///< [N] out: a token, kNonFinite or kUndecided
  void* workspace = nullptr;  ///< sample_workspace(most N) bytes, zeroed once
};
int64_t sample_workspace(int rows) noexcept;
/// Queued; allocates nothing.
void sample(const Sample& args, CUstream_st* stream) noexcept;

}  // namespace switchyard::cuda
