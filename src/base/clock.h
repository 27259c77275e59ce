// SPDX-License-Identifier: Apache-2.0
// now_ns: nanoseconds of a clock that never goes back. Read twice for every zone of a profile, so it must be cheap: after
// calibrate_clock() it is the processor's time stamp counter, scaled (10 ns a read beside 25), where that counter runs
// at one rate on all cores; before, and elsewhere, the system's steady clock.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include <x86intrin.h>

namespace switchyard {

/// Nanoseconds = base_ns + (counter - base_ticks) * ns_per_tick; a rate of 0: not calibrated.
struct CounterClock {
  std::atomic<double> ns_per_tick{0};
  std::atomic<int64_t> base_ns{0}, base_ticks{0};
};
extern CounterClock counter_clock;

/// Once for the process, some 5 ms; later calls do nothing. Leaves the steady clock in place when the counter is not
/// invariant. The rate is within 1e-5.
void calibrate_clock();

inline int64_t steady_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline int64_t now_ns() noexcept {
  const double rate = counter_clock.ns_per_tick.load(std::memory_order_acquire);
  if (rate == 0) return steady_ns();
  const auto ticks = static_cast<int64_t>(__rdtsc());
  const int64_t passed = ticks - counter_clock.base_ticks.load(std::memory_order_relaxed);
  return counter_clock.base_ns.load(std::memory_order_relaxed) +
         static_cast<int64_t>(static_cast<double>(passed) * rate);
}

}  // namespace switchyard
