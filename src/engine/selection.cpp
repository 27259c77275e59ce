// SPDX-License-Identifier: Apache-2.0
#include "engine/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace switchyard::engine {
namespace {

// Entries that are looked at together: one vector register of the widest kind.
constexpr size_t kLanes = 16;

/// The smallest buffer that is worth halving; below it, select_best would partition too often.
constexpr int64_t kLeastBuffer = 1024;

/// True when any of kLanes logits is above `threshold`.
bool any_above(const float* logits, float threshold) noexcept {
  int above = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) above |= logits[lane] > threshold ? 1 : 0;
  return above != 0;
}

/// The buffer of select_best.
class Best {
 public:
  Best(int64_t count, std::span<Candidate> to) noexcept
      : to_(to),
        count_(count),
        room_(std::min<int64_t>(static_cast<int64_t>(to.size()),
                                std::max(2 * count, kLeastBuffer))) {}

  float threshold() const noexcept { return threshold_; }

  void add(float logit, int32_t token) noexcept {
    to_[static_cast<size_t>(used_++)] = {logit, token};
    if (used_ == room_) shrink();
  }

  int64_t finish() noexcept {
    shrink();
    std::sort(to_.begin(), to_.begin() + used_, better);
    return used_;
  }

 private:
  /// Keeps the best count_ entries. Tokens come in rising order, so that a later one which only
  /// equals the threshold loses its tie: from here on, entries must be strictly above.
  void shrink() noexcept {
    if (used_ <= count_) return;
    const auto last = to_.begin() + (count_ - 1);
    std::nth_element(to_.begin(), last, to_.begin() + used_, better);
    threshold_ = last->logit;
    used_ = count_;
  }

  std::span<Candidate> to_;
  int64_t count_, room_, used_ = 0;
  float threshold_ = -std::numeric_limits<float>::infinity();
};

}  // namespace

double Weigher::operator()(float logit) const noexcept {
  constexpr double kLeast = -200;  // below it, the exponential is zero as a float
  const double power = (static_cast<double>(logit) - largest) * inverse_temperature;
  // In this order, so that NaN, of a masked token where all are masked, weighs nothing.
  return static_cast<double>(std::exp(static_cast<float>(std::max(kLeast, power))));
}

bool all_finite(std::span<const float> logits) noexcept {
  // The exponent bits are all set for NaN and infinity alone; a loop without branches becomes
  // vector code.
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t bad = 0;
  for (const float logit : logits)
    bad |= (std::bit_cast<uint32_t>(logit) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

Candidate find_largest(std::span<const float> logits) noexcept {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < logits.size(); ++i) largest = std::max(largest, logits[i]);
  const auto at = std::find(logits.begin(), logits.end(), largest);
  return {largest, static_cast<int32_t>(at - logits.begin())};
}

int64_t select_best(std::span<const float> logits, int64_t count,
                    std::span<Candidate> to) noexcept {
  const auto size = static_cast<int64_t>(logits.size());
  count = std::min(count, size);
  if (count <= 0) return 0;
  Best best(count, to);
  const auto visit = [&](size_t i) {
    if (logits[i] > best.threshold()) best.add(logits[i], static_cast<int32_t>(i));
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    if (!any_above(logits.data() + i, best.threshold())) continue;
    for (size_t lane = 0; lane < kLanes; ++lane) visit(i + lane);
  }
  for (; i < logits.size(); ++i) visit(i);
  return best.finish();
}

int64_t select_mass(std::span<Candidate> candidates, double mass, const Weigher& weigh) noexcept {
  // Everything before `low` is kept, everything from `high` on is not.
  auto low = candidates.begin(), high = candidates.end();
  double kept = 0;
  while (low != high) {
    std::swap(*low, *(low + (high - low) / 2));  // sorted input must not make it quadratic
    const Candidate pivot = *low;
    double better_mass = 0;
    auto last = low;  // [low + 1, last] are better than the pivot
    for (auto at = low + 1; at != high; ++at) {
      if (!better(*at, pivot)) continue;
      better_mass += weigh(at->logit);
      std::swap(*++last, *at);
    }
    std::swap(*low, *last);  // now [low, last) are better, and the pivot is at last
    if (kept + better_mass >= mass) {
      high = last;
      continue;
    }
    kept += better_mass + weigh(pivot.logit);
    low = last + 1;
    if (kept >= mass) break;
  }
  return low - candidates.begin();
}

}  // namespace switchyard::engine
