// SPDX-License-Identifier: Apache-2.0
#include "engine/drop_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/log.h"

namespace switchyard::engine {
namespace {

/// What experts turn away beyond an even share times `factor`, rounded up.
int64_t excess(std::span<const int32_t> demand, int64_t total, double factor) {
  const double share = static_cast<double>(total) / static_cast<double>(demand.size());
  const auto capacity = static_cast<int64_t>(std::ceil(factor * share));
  int64_t sum = 0;
  for (const int32_t picks : demand) sum += std::max<int64_t>(picks - capacity, 0);
  return sum;
}

}  // namespace

void DropWatch::add(std::span<const int32_t> demand, int64_t dropped) {
  if (!can_drop() || warned_) return;
  const int64_t total = std::accumulate(demand.begin(), demand.end(), int64_t{0});
  picks_ += total;
  dropped_ += dropped;
  if (dropped == 0) return;
  for (size_t i = 0; i < kFactors.size(); ++i)
    if (kFactors[i] > factor_)
      would_drop_[i] += excess(demand, total, static_cast<double>(kFactors[i]));
}

void DropWatch::end_step() {
  if (!can_drop() || warned_ || ++steps_ < kWindowSteps) return;
  if (static_cast<double>(dropped_) > kMostDropped * static_cast<double>(picks_)) {
    warn();
    warned_ = true;
  }
  steps_ = 0;
  picks_ = dropped_ = 0;
  would_drop_ = {};
}

void DropWatch::warn() const {
  const auto percent = [&](int64_t picks) {
    return 100 * static_cast<double>(picks) / static_cast<double>(picks_);
  };
  std::string advice;
  for (size_t i = 0; i < kFactors.size(); ++i) {
    if (kFactors[i] <= factor_ || percent(would_drop_[i]) > 100 * kMostDropped) continue;
    advice = fmt::format("raise it to {} (about {:.1f}% then), or ", kFactors[i],
                         percent(would_drop_[i]));
    break;
  }
  log(LogLevel::warning,
      "capacity_factor {} dropped {:.1f}% of the picks of {} steps, more than {:.0f}%: {}set it to "
      "0, which drops nothing",
      factor_, percent(dropped_), kWindowSteps, 100 * kMostDropped, advice);
}

}  // namespace switchyard::engine
