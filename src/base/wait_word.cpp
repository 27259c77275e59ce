// SPDX-License-Identifier: Apache-2.0
// No wake-up is lost: a sleeper counts itself and then lets the kernel compare the value; the publisher stores the
// value and then reads the count. In the single order of sequentially consistent operations one of them comes first.
#include "base/wait_word.h"

#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace switchyard {
// The kernel works on the plain word inside the atomic.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

void WaitWord::publish(uint32_t value) noexcept {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

uint32_t WaitWord::sleep_while(uint32_t old) noexcept {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  uint32_t now = 0;
  while ((now = value_.load(std::memory_order_seq_cst)) == old) {
    // Returns at once if the value has changed; signals and spurious wake-ups go round the loop.
    ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return now;
}

}  // namespace switchyard
