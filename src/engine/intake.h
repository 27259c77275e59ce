// SPDX-License-Identifier: Apache-2.0
// Intake: the queue between any thread and the loop: new requests, cancellations, and the wish to
// stop. The loop looks at one atomic when nothing is new.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "engine/live.h"

namespace switchyard::engine {

class Intake {
 public:
  /// Queues a request and gives it the next id. Errors: Code::unavailable after stop().
  Result<RequestId> push(std::unique_ptr<Live> live);
  void cancel(RequestId id);
  /// No more requests; wakes the loop.
  void stop();

  /// What has come since the last call, in order. The vectors are swapped, so hand in empty ones.
  struct News {
    std::vector<std::unique_ptr<Live>> requests;
    std::vector<RequestId> cancelled;
    bool stopping = false;
  };
  /// False when nothing is new. Loop thread.
  bool drain(News& news);
  /// Whether drain() would find something.
  const std::atomic<bool>& has_news() const noexcept { return has_news_; }
  /// Blocks until something is new, or for that long, but for no more than a day. Loop thread.
  void wait(double seconds);

  /// One request has had its last event. Loop thread.
  void ended();
  /// Blocks until every pushed request has ended.
  void wait_idle();
  /// The same, for that long: false when some have not.
  bool wait_idle_for(double seconds);
  /// Pushed and not ended.
  int64_t alive() const;

 private:
  std::atomic<bool> has_news_{false};
  mutable std::mutex mutex_;
  std::condition_variable news_, idle_;
  News pending_;
  RequestId last_id_ = 0;
  int64_t alive_ = 0;  // pushed and not ended
};

}  // namespace switchyard::engine
