// SPDX-License-Identifier: Apache-2.0
#include "moe/route/rows.h"

#include <cmath>
#include <limits>

namespace switchyard::moe {

// A later equal value never displaces an earlier one.
void top_k(const float* values, int count, int k, int32_t* index) noexcept {
  int filled = 0;
  for (int e = 0; e < count; ++e) {
    if (filled == k && !(values[e] > values[index[k - 1]])) continue;
    int at = filled < k ? filled++ : k - 1;
    for (; at > 0 && values[e] > values[index[at - 1]]; --at) index[at] = index[at - 1];
    index[at] = e;
  }
}

bool unusable(const float* logits, int count) noexcept {
  bool found = false;
  float highest = -std::numeric_limits<float>::infinity();
  for (int e = 0; e < count; ++e) {
    found |= std::isnan(logits[e]);
    highest = logits[e] > highest ? logits[e] : highest;
  }
  return found || !std::isfinite(highest);
}

void give_up(int k, int32_t* expert, float* weight) noexcept {
  for (int i = 0; i < k; ++i) {
    expert[i] = i;
    weight[i] = 0;
  }
}

}  // namespace switchyard::moe
