// SPDX-License-Identifier: Apache-2.0
#include "schedule/queue_limits.h"

#include "base/check.h"

namespace switchyard::schedule {

Status QueueLimits::check() const {
  if (max_requests < 0)
    return fail(Code::bad_request, "max_queued_requests is {}, expected at least 0 (0: no limit)",
                max_requests);
  if (max_tokens < 0)
    return fail(Code::bad_request, "max_queued_tokens is {}, expected at least 0 (0: no limit)",
                max_tokens);
  return {};
}

Status QueueCount::add_request() {
  if (limits_.max_requests > 0 && requests_ >= limits_.max_requests)
    return fail(Code::overloaded,
                "queue_full: {} requests wait already, at most {} may (max_queued_requests): try "
                "again later",
                requests_, limits_.max_requests);
  ++requests_;
  return {};
}

Status QueueCount::add_tokens(int64_t tokens) {
  SWITCHYARD_CHECK(tokens >= 0, "{} tokens", tokens);
  if (limits_.max_tokens > 0 && tokens_ > 0 && tokens_ + tokens > limits_.max_tokens)
    return fail(Code::overloaded,
                "queue_tokens_full: {} prompt tokens wait already, {} more would exceed {} "
                "(max_queued_tokens): try again later",
                tokens_, tokens, limits_.max_tokens);
  tokens_ += tokens;
  return {};
}

void QueueCount::leave(int64_t tokens) {
  --requests_;
  tokens_ -= tokens;
  SWITCHYARD_CHECK(requests_ >= 0 && tokens_ >= 0, "{} requests of {} tokens wait", requests_,
                   tokens_);
}

}  // namespace switchyard::schedule
