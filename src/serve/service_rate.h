// SPDX-License-Identifier: Apache-2.0
// ServiceRate: how many choices end in a second while the engine is full, so that those who are turned away can be told
// when to come again. Time in which it is not full says nothing of that and does not count. Older time fades, with a time
// constant of 30 s.
#pragma once
#include <cstdint>
#include <mutex>

namespace switchyard::serve {

class ServiceRate {
 public:
  /// `full`: choices that run at once.
  explicit ServiceRate(int64_t full) : full_(full) {}

  /// Choices have come or, as a negative number, have ended. Any thread.
  void change(int64_t choices, int64_t now_ns);
  /// Seconds until those who wait, and one more, have had their turn; 1 while nothing has been measured.
  double wait_s() const;

 private:
  const int64_t full_;
  mutable std::mutex mutex_;
  int64_t in_ = 0, last_ns_ = 0;
  double ended_ = 0, full_s_ = 0;  // both faded alike
};

}  // namespace switchyard::serve
