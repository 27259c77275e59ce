// SPDX-License-Identifier: Apache-2.0
// RateLimiter: calls a minute of each key. A bucket for each holds a minute's worth, and fills evenly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace switchyard::serve {

class RateLimiter {
 public:
  /// `calls_per_minute` 0: no limit. `keys` 0: all share one bucket.
  RateLimiter(double calls_per_minute, size_t keys);

  /// Takes one call of a key: 0, or the seconds after which there will be one. Any thread.
  double take(size_t key, int64_t now_ns);

 private:
  struct Bucket {
    double calls = 0;
    int64_t filled_ns = 0;
  };
  const double per_minute_;
  std::mutex mutex_;
  std::vector<Bucket> buckets_;
};

}  // namespace switchyard::serve
