// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/coactivation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace switchyard::moe {
namespace {

double expected(const Coactivation& counts, int a, int b) {
  const double e = counts.num_experts, k = counts.top_k;
  if (counts.tokens == 0 || counts.num_experts < 2) return 0;
  return static_cast<double>(counts.at(a, a)) * static_cast<double>(counts.at(b, b)) /
         static_cast<double>(counts.tokens) * (k - 1) * e / (k * (e - 1));
}

}  // namespace

double Coactivation::given(int a, int b) const {
  return at(a, a) == 0 ? 0 : static_cast<double>(at(a, b)) / static_cast<double>(at(a, a));
}

double Coactivation::lift(int a, int b) const {
  const double chance = expected(*this, a, b);
  return chance > 0 ? static_cast<double>(at(a, b)) / chance : 0;
}

Coactivation measure_coactivation(const TraceView& trace, int layer) {
  const TraceHeader& header = trace.header();
  SWITCHYARD_CHECK(header.has_picks && header.num_experts <= kMaxCoactivationExperts);
  const auto num_experts = static_cast<size_t>(header.num_experts);
  const auto top_k = static_cast<size_t>(header.top_k);
  Coactivation counts{header.num_experts, header.top_k, 0, {}};
  counts.both.resize(num_experts * num_experts);
  for (int64_t i = 0; i < trace.num_steps(); ++i) {
    const std::span<const uint16_t> picks = trace.step(i).picks(layer);
    for (size_t at = 0; at < picks.size(); at += top_k) {
      ++counts.tokens;
      for (const uint16_t a : picks.subspan(at, top_k))
        for (const uint16_t b : picks.subspan(at, top_k))
          if (a != kDroppedPick && b != kDroppedPick) ++counts.both[a * num_experts + b];
    }
  }
  return counts;
}

std::vector<ExpertPair> strongest_pairs(const Coactivation& counts, size_t count) {
  std::vector<std::pair<double, ExpertPair>> pairs;
  for (int a = 0; a < counts.num_experts; ++a) {
    for (int b = a + 1; b < counts.num_experts; ++b) {
      const double chance = expected(counts, a, b);
      if (chance <= 0) continue;
      const double excess = (static_cast<double>(counts.at(a, b)) - chance) / std::sqrt(chance);
      pairs.push_back({excess, {a, b, counts.at(a, b), counts.lift(a, b)}});
    }
  }
  const size_t kept = std::min(count, pairs.size());
  std::partial_sort(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(kept), pairs.end(),
                    [](const auto& x, const auto& y) {
                      if (x.first != y.first) return x.first > y.first;
                      return std::pair(x.second.a, x.second.b) < std::pair(y.second.a, y.second.b);
                    });
  std::vector<ExpertPair> strongest;
  for (size_t i = 0; i < kept; ++i) strongest.push_back(pairs[i].second);
  return strongest;
}

}  // namespace switchyard::moe
