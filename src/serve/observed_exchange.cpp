// SPDX-License-Identifier: Apache-2.0
#include "serve/observed_exchange.h"

#include <utility>

#include "base/clock.h"

namespace switchyard::serve {

void ObservedExchange::State::end(bool complete) {
  if (ended.exchange(true)) return;
  record->complete = complete;
  record->total_s = static_cast<double>(now_ns() - record->received_ns) * 1e-9;
  on_end(*record);
}

// The record is complete before the bytes leave: who has read an answer finds it in the metrics.
void ObservedExchange::reply(HttpReply reply) {
  state_->record->status = reply.status;
  state_->end(true);
  next_->reply(std::move(reply));
}

void ObservedExchange::start_stream(HttpReply head) {
  state_->record->status = head.status;
  next_->start_stream(std::move(head));
}

void ObservedExchange::end_stream(After after) {
  state_->end(true);
  next_->end_stream(after);
}

void ObservedExchange::on_disconnect(std::function<void()> gone) {
  next_->on_disconnect([state = state_, gone = std::move(gone)] {
    gone();
    state->end(false);
  });
}

}  // namespace switchyard::serve
