// SPDX-License-Identifier: Apache-2.0
// A word that one thread changes and others wait for: a bounded spin first, then sleep in the kernel (futex). A change
// costs no system call unless someone sleeps.
#pragma once
#include <atomic>
#include <cstdint>

namespace switchyard {

class alignas(64) WaitWord {
 public:
  uint32_t load() const noexcept { return value_.load(std::memory_order_acquire); }

  /// Sets the value and wakes every sleeper. One thread at a time.
  void publish(uint32_t value) noexcept;

  /// Returns the first value seen that differs from `old`, after at most `spin_ns` of spinning.
  uint32_t wait_while(uint32_t old, int64_t spin_ns) noexcept;
  /// Returns when the value is `wanted`.
  void wait_until(uint32_t wanted, int64_t spin_ns) noexcept;

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace switchyard
