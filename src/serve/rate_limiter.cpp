// SPDX-License-Identifier: Apache-2.0
#include "serve/rate_limiter.h"

#include <algorithm>

namespace switchyard::serve {

RateLimiter::RateLimiter(double calls_per_minute, size_t keys)
    : per_minute_(calls_per_minute), buckets_(std::max<size_t>(keys, 1)) {
  for (Bucket& bucket : buckets_) bucket.calls = std::max(per_minute_, 1.0);
}

double RateLimiter::take(size_t key, int64_t now_ns) {
  if (per_minute_ == 0) return 0;
  const std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_[std::min(key, buckets_.size() - 1)];
  const double per_ns = per_minute_ / 60e9;
  if (bucket.filled_ns != 0)
    bucket.calls += static_cast<double>(std::max<int64_t>(now_ns - bucket.filled_ns, 0)) * per_ns;
  bucket.calls = std::min(bucket.calls, std::max(per_minute_, 1.0));
  bucket.filled_ns = now_ns;
  if (bucket.calls < 1) return (1 - bucket.calls) / per_ns * 1e-9;
  bucket.calls -= 1;
  return 0;
}

}  // namespace switchyard::serve
