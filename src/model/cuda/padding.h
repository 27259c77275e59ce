// SPDX-License-Identifier: Apache-2.0
// Graphs of decode steps exist for few numbers of sequences; a step with fewer is padded with sequences that repeat the first one,
// with all its positions.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "model/model.h"

namespace switchyard::model::cuda {

// All small ones, then few.
inline constexpr std::array kPaddedSequences = {1,  2,  3,   4,   5,   6,   7,   8,  12,
                                                16, 20, 24,  28,  32,  40,  48,  56, 64,
                                                80, 96, 112, 128, 160, 192, 224, 256};

/// The next larger number of sequences that has a graph, within what the buffers hold. At most the largest of them.
inline int padded(int sequences, const LoadOptions& options) {
  const int wanted = *std::ranges::lower_bound(kPaddedSequences, sequences);
  const auto most = std::min<int64_t>(options.max_sequences, options.max_step_tokens);
  return wanted <= most ? wanted : sequences;
}

/// Positions that the sequences of a step, padding included, can have together. Sequences may share blocks, so the cache's size
/// bounds each of them but not their sum.
inline int64_t step_positions(const LoadOptions& options) {
  const int64_t sequences = std::min<int64_t>(options.max_sequences, options.max_step_tokens);
  const int64_t blocks = std::min<int64_t>(options.num_kv_blocks, options.max_blocks_per_sequence);
  return sequences * blocks * options.block_tokens;
}

}  // namespace switchyard::model::cuda
