// SPDX-License-Identifier: Apache-2.0
// Limits: what a step may hold, and how the scheduler treats those who wait.
#pragma once
#include "base/result.h"

namespace switchyard::schedule {

struct Limits {
  int max_sequences = 16;     ///< B of a step at most
  int max_step_tokens = 512;  ///< T of a step at most; at least max_sequences
  int block_tokens = 16;      ///< P
  int num_blocks = 0;         ///< blocks of the KV cache
  double ageing_s = 10;       ///< waiting this long is worth one level of priority
  int min_decode_batch = 0;   ///< steps that only decode wait for this many sequences ...
  double decode_wait_s = 0;   ///< ... but no longer than this; 0: never

  /// Refuses limits with which a sequence could wait for ever.
  Status check() const;
};

/// Priorities lie in [-kMaxPriority, kMaxPriority].
inline constexpr int kMaxPriority = 1000;

}  // namespace switchyard::schedule
