// SPDX-License-Identifier: Apache-2.0
// Drawing picks: K different experts for each of T tokens, from weights or from probabilities. Every
// number comes from a counter (Philox), so the same seed gives the same picks on any number of
// threads and in any order of steps.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace switchyard::moe {

/// The last word of a counter keeps the uses of one seed apart.
inline constexpr uint32_t kPopularityStream = 1, kWeightedStream = 2, kSystematicStream = 3,
                          kMixedStream = 4;

inline std::array<uint32_t, 2> seed_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

/// In [0, 1).
inline double unit_draw(uint64_t seed, const PhiloxBlock& counter) {
  const PhiloxBlock words = philox4x32(counter, seed_key(seed));
  return unit_double(words[0], words[1]);
}

/// Picks [T, K] of step `step`: for each token K different experts, one after another with
/// probability proportional to the weight among those that are left. By racing clocks: expert e
/// rings at an exponential time of rate w_e and the first K win (the same as the K largest of log
/// w_e plus Gumbel noise). In the order of their ringing.
/// Source: Efraimidis and Spirakis 2006; Kool et al. 2019, arXiv 1903.06059.
std::vector<int32_t> draw_weighted(std::span<const double> weights, int64_t tokens, int top_k,
                                   uint64_t seed, uint32_t step);

/// Picks [T, K] in which expert e has the probability inclusion[e] of being among a token's K,
/// exactly; inclusion sums to K and none is above 1. Systematic sampling over a shuffled list: K
/// points one apart on the line of summed probabilities. Source: Madow 1949.
std::vector<int32_t> draw_systematic(std::span<const double> inclusion, int64_t tokens, int top_k,
                                     uint64_t seed, uint32_t step);

}  // namespace switchyard::moe
