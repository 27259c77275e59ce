// SPDX-License-Identifier: Apache-2.0
#include "serve/service_rate.h"

#include <algorithm>
#include <cmath>

namespace switchyard::serve {
namespace {

constexpr double kFadeSeconds = 30;

}  // namespace

void ServiceRate::change(int64_t choices, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (in_ >= full_) {
    const double passed_s = static_cast<double>(std::max<int64_t>(now_ns - last_ns_, 0)) * 1e-9;
    const double left = std::exp(-passed_s / kFadeSeconds);
    ended_ *= left;
    full_s_ = full_s_ * left + kFadeSeconds * (1 - left);
    if (choices < 0) ended_ -= static_cast<double>(choices);
  }
  in_ += choices;
  last_ns_ = now_ns;
}

double ServiceRate::wait_s() const {
  const std::lock_guard lock(mutex_);
  if (ended_ <= 0 || full_s_ <= 0) return 1;
  const auto ahead = static_cast<double>(std::max<int64_t>(in_ - full_, 0) + 1);
  return ahead * full_s_ / ended_;
}

}  // namespace switchyard::serve
