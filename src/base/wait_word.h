// SPDX-License-Identifier: Apache-2.0
// A word that one thread changes and others wait for: a bounded spin first, then sleep in the kernel (futex). A change
// costs no system call unless someone sleeps.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/trace.h"

namespace switchyard {

class alignas(64) WaitWord {
 public:
  uint32_t load() const noexcept { return value_.load(std::memory_order_acquire); }

  /// Sets the value and wakes every sleeper. One thread at a time.
  void publish(uint32_t value) noexcept;

  /// Returns the first value seen that differs from `old`. Spins for at most `spin_ns`, and no longer once `spin_is_vain`
  /// says so (asked about once per microsecond); then sleeps.
  template <class Vain>
  uint32_t wait_while(uint32_t old, int64_t spin_ns, Vain spin_is_vain) noexcept {
    if (const uint32_t now = load(); now != old) return now;
    const int64_t deadline = now_ns() + spin_ns;
    do {
      for (int i = 0; i < kPausesPerClock; ++i) {
        const uint32_t now = load();
        if (now != old) return now;
        __builtin_ia32_pause();
      }
    } while (now_ns() < deadline && !spin_is_vain());
    return sleep_while(old);
  }
  uint32_t wait_while(uint32_t old, int64_t spin_ns) noexcept {
    return wait_while(old, spin_ns, [] { return false; });
  }

 private:
  // A pause takes some tens of nanoseconds, reading the clock too: so the clock is read once per some pauses.
  static constexpr int kPausesPerClock = 16;

  uint32_t sleep_while(uint32_t old) noexcept;

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace switchyard
