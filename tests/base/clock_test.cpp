// SPDX-License-Identifier: Apache-2.0
// The calibrated clock keeps time with the steady clock and never goes back.
#include "base/clock.h"

#include <cmath>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Clock, KeepsTimeWithTheSteadyClock) {
  calibrate_clock();
  const int64_t start = now_ns(), steady_start = steady_ns();
  while (steady_ns() - steady_start < 50'000'000) {
  }
  const auto passed = static_cast<double>(now_ns() - start);
  const auto steady = static_cast<double>(steady_ns() - steady_start);
  EXPECT_LT(std::abs(passed - steady), 1e-3 * steady + 2e5);
  EXPECT_LT(std::abs(static_cast<double>(now_ns() - steady_ns())), 2e6);
}

TEST(Clock, NeverGoesBack) {
  calibrate_clock();
  int64_t before = now_ns();
  for (int i = 0; i < 100'000; ++i) {
    const int64_t now = now_ns();
    ASSERT_GE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace switchyard
