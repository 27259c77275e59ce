// SPDX-License-Identifier: Apache-2.0
#include "moe/workload/draw.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace switchyard::moe {
namespace {

/// A uniform number above 0 for each expert of a token, four from one counter.
void draw_units(uint64_t seed, uint32_t stream, uint32_t step, uint32_t token,
                std::span<double> units) {
  for (size_t e = 0; e < units.size(); e += 4) {
    const PhiloxBlock words =
        philox4x32({static_cast<uint32_t>(e / 4), token, step, stream}, seed_key(seed));
    for (size_t i = 0; i < 4 && e + i < units.size(); ++i)
      units[e + i] = (words[i] + 0.5) * 0x1p-32;
  }
}

}  // namespace

std::vector<int32_t> draw_weighted(std::span<const double> weights, int64_t tokens, int top_k,
                                   uint64_t seed, uint32_t step) {
  SWITCHYARD_CHECK(top_k >= 1 && top_k <= std::ssize(weights), "{} of {}", top_k, weights.size());
  std::vector<int32_t> picks;
  picks.reserve(static_cast<size_t>(tokens * top_k));
  std::vector<double> units(weights.size());
  std::vector<std::pair<double, int32_t>> clocks(weights.size());
  for (int64_t t = 0; t < tokens; ++t) {
    draw_units(seed, kWeightedStream, step, static_cast<uint32_t>(t), units);
    for (size_t e = 0; e < clocks.size(); ++e) {
      clocks[e] = {-std::log(units[e]) / weights[e], static_cast<int32_t>(e)};
    }
    std::partial_sort(clocks.begin(), clocks.begin() + top_k, clocks.end());
    for (int k = 0; k < top_k; ++k) picks.push_back(clocks[static_cast<size_t>(k)].second);
  }
  return picks;
}

std::vector<int32_t> draw_systematic(std::span<const double> inclusion, int64_t tokens, int top_k,
                                     uint64_t seed, uint32_t step) {
  std::vector<int32_t> picks, order(inclusion.size());
  picks.reserve(static_cast<size_t>(tokens * top_k));
  std::vector<double> units(inclusion.size() + 1);
  for (int64_t t = 0; t < tokens; ++t) {
    draw_units(seed, kSystematicStream, step, static_cast<uint32_t>(t), units);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return units[a] < units[b]; });
    const double start = units.back();
    double sum = 0;
    int found = 0;
    for (size_t i = 0; i < order.size() && found < top_k; ++i) {
      sum += inclusion[static_cast<size_t>(order[i])];
      // Rounding of the sum may lose the last point: the last experts then take it.
      const bool must = std::ssize(order) - static_cast<int64_t>(i) == top_k - found;
      if (sum <= start + found && !must) continue;
      picks.push_back(order[i]);
      ++found;
    }
  }
  return picks;
}

}  // namespace switchyard::moe
