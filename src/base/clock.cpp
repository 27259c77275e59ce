// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <mutex>

#include <cpuid.h>

namespace switchyard {
namespace {

// The counter runs at one rate in all power states: CPUID leaf 0x80000007, bit 8 of EDX.
bool counter_is_invariant() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
}

/// Both clocks at one moment.
struct Moment {
  int64_t ns, ticks;
};
Moment moment() { return {steady_ns(), static_cast<int64_t>(__rdtsc())}; }

void measure() {
  constexpr int64_t kWindowNs = 5'000'000;
  if (!counter_is_invariant()) return;
  const Moment start = moment();
  Moment end = start;
  while (end.ns - start.ns < kWindowNs) end = moment();
  if (end.ticks <= start.ticks) return;
  counter_clock.base_ns.store(end.ns, std::memory_order_relaxed);
  counter_clock.base_ticks.store(end.ticks, std::memory_order_relaxed);
  const double rate =
      static_cast<double>(end.ns - start.ns) / static_cast<double>(end.ticks - start.ticks);
  counter_clock.ns_per_tick.store(rate, std::memory_order_release);
}

}  // namespace

CounterClock counter_clock;

void calibrate_clock() {
  static std::once_flag once;
  std::call_once(once, measure);
}

}  // namespace switchyard
