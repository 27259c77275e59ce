// SPDX-License-Identifier: Apache-2.0
#include "model/steps_ahead.h"

#include <algorithm>

namespace switchyard::model {
namespace {

// What it takes to queue a step of many launches, and what steps differ by.
constexpr int64_t kLeastLeadNs = 150'000;
constexpr int64_t kLeadShare = 20;  // of a step's time

}  // namespace

void StepsAhead::waste() noexcept {
  if (queued_) ++counts_.wasted;
  queued_ = false;
}

void StepsAhead::take(bool known, bool decodes) noexcept {
  if (!queued_) return;
  if (known) {
    ++counts_.used;
    queued_ = false;
    return;
  }
  waste();
  if (decodes) pause_ = std::max(pause_, kPauseAfterWaste);
}

std::optional<int64_t> StepsAhead::decide_by(int64_t begun_ns, int sequences) noexcept {
  if (pause_ > 0) {
    --pause_;
    return std::nullopt;
  }
  const auto usual = usual_ns_.find(sequences);
  if (!works_ || usual == usual_ns_.end()) return std::nullopt;
  return begun_ns + usual->second - std::max(kLeastLeadNs, usual->second / kLeadShare);
}

void StepsAhead::failed() noexcept {
  ++counts_.failed;
  works_ = false;
}

void StepsAhead::repeat() noexcept {
  waste();
  pause_ = kPauseAfterRepeat;
}

void StepsAhead::learn(int sequences, int64_t took_ns) {
  constexpr int64_t kSlowly = 8;
  const auto [at, is_new] = usual_ns_.try_emplace(sequences, took_ns);
  if (is_new) return;
  int64_t& usual = at->second;
  usual = took_ns < usual ? took_ns : usual + (took_ns - usual) / kSlowly;
}

}  // namespace switchyard::model
