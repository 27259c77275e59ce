// SPDX-License-Identifier: Apache-2.0
#include "moe/route/selection_bias.h"

#include <numeric>

#include "base/check.h"

namespace switchyard::moe {

void update_selection_bias(std::span<float> bias, std::span<const int64_t> load,
                           float rate) noexcept {
  SWITCHYARD_CHECK(bias.size() == load.size(), "a bias for {} experts, loads of {}", bias.size(),
                   load.size());
  const auto num_experts = static_cast<int64_t>(load.size());
  const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
  for (size_t e = 0; e < load.size(); ++e) {
    // Compared in whole numbers: a rounded mean would push an expert that is exactly on it.
    const int64_t here = load[e] * num_experts;
    if (here < total) bias[e] += rate;
    if (here > total) bias[e] -= rate;
  }
}

}  // namespace switchyard::moe
