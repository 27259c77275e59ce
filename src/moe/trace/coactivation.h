// SPDX-License-Identifier: Apache-2.0
// Co-activation: which experts work on the same tokens. Needs a trace with picks.
// Source of the definition: Muennighoff et al. 2024, arXiv 2409.02060, section 5.2 (OLMoE).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "moe/trace/reader.h"

namespace switchyard::moe {

inline constexpr int kMaxCoactivationExperts = 2048;  ///< the table has E^2 entries of 8 bytes

struct Coactivation {
  int num_experts = 0, top_k = 0;
  uint64_t tokens = 0;
  std::vector<uint64_t> both;  ///< [E, E] tokens that picked both; [e, e] tokens that picked e

  uint64_t at(int a, int b) const {
    return both[static_cast<size_t>(a) * static_cast<size_t>(num_experts) + static_cast<size_t>(b)];
  }
  /// Share of a's tokens that picked b too: N(a, b) / N(a).
  double given(int a, int b) const;
  /// N(a, b) over what picks without affinity would give, which is N(a) N(b) / T times
  /// (K-1) E / (K (E-1)), because a token's picks are distinct. 1: no affinity.
  double lift(int a, int b) const;
};

/// The trace must hold picks of at most kMaxCoactivationExperts experts.
Coactivation measure_coactivation(const TraceView& trace, int layer);

struct ExpertPair {
  int a = 0, b = 0;  ///< a < b
  uint64_t tokens = 0;
  double lift = 0;
};
/// Those most above what chance gives, by (N - expected) / sqrt(expected).
std::vector<ExpertPair> strongest_pairs(const Coactivation& counts, size_t count);

}  // namespace switchyard::moe
