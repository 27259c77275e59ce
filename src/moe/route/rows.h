// SPDX-License-Identifier: Apache-2.0
// What the selectors that work row by row share: finding the best of a row, and giving a row up.
#pragma once
#include <atomic>
#include <cstdint>

#include "moe/route/selector.h"

namespace switchyard::moe {

/// The K largest of values[0, count), by falling value; equal values keep the lower index first.
/// None may be NaN. Indices are distinct, also when values are -infinity.
void top_k(const float* values, int count, int k, int32_t* index) noexcept;

/// NaN anywhere, +infinity, or nothing but -infinity: no score can be formed. (-infinity beside
/// other values is a masked expert.)
bool unusable(const float* logits, int count) noexcept;

/// Logits that are worth waking a thread for: some 10 microseconds.
inline constexpr int64_t kGrainLogits = 2048;

/// Experts 0..K-1 with weight 0.
void give_up(int k, int32_t* expert, float* weight) noexcept;

/// Calls choose(t, logits, expert, weight) for every usable row, over the threads; gives up the
/// others and returns their number.
template <class Choose>
int64_t for_each_row(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                     const Stream& stream, Choose&& choose) {
  std::atomic<int64_t> bad{0};
  const int64_t grain = 1 + kGrainLogits / spec.num_experts;
  stream.pool().for_range(in.tokens, grain, [&](int64_t begin, int64_t end, int) {
    int64_t mine = 0;
    for (int64_t t = begin; t < end; ++t) {
      const float* logits = in.logits + t * spec.num_experts;
      int32_t* expert = out.expert + t * spec.top_k;
      float* weight = out.weight + t * spec.top_k;
      if (unusable(logits, spec.num_experts)) {
        give_up(spec.top_k, expert, weight);
        ++mine;
      } else {
        choose(t, logits, expert, weight);
      }
    }
    bad.fetch_add(mine, std::memory_order_relaxed);
  });
  return bad.load();
}

}  // namespace switchyard::moe
