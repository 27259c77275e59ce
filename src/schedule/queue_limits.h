// SPDX-License-Identifier: Apache-2.0
// QueueLimits and QueueCount: how many requests and prompt tokens may wait for their first step. A request takes its
// place before anything is done for it, and its tokens when they have been counted; who finds the queue full is turned
// away without having cost anything.
#pragma once
#include <cstdint>

#include "base/result.h"

namespace switchyard::schedule {

struct QueueLimits {
  int64_t max_requests = 0;  ///< 0: no limit
  int64_t max_tokens = 0;    ///< prompt tokens; 0: no limit

  Status check() const;
};

class QueueCount {
 public:
  explicit QueueCount(const QueueLimits& limits) : limits_(limits) {}

  /// Errors: Code::overloaded, "queue_full: ...", with the limit.
  Status add_request();
  /// Errors: Code::overloaded, "queue_tokens_full: ...", with the limit; the request keeps its place. A single request
  /// that is larger than the limit is let in when no other tokens wait.
  Status add_tokens(int64_t tokens);
  void leave(int64_t tokens);

  int64_t requests() const noexcept { return requests_; }
  int64_t tokens() const noexcept { return tokens_; }

 private:
  QueueLimits limits_;
  int64_t requests_ = 0, tokens_ = 0;
};

}  // namespace switchyard::schedule
