// SPDX-License-Identifier: Apache-2.0
// ObservedExchange: an exchange that passes everything on, and tells once how the answer ended.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "serve/http.h"
#include "serve/request_record.h"

namespace switchyard::serve {

class ObservedExchange final : public HttpExchange {
 public:
  /// `on_end` gets the record when the answer is complete, when the client has gone, or when the exchange is dropped;
  /// from the thread that did it.
  ObservedExchange(std::shared_ptr<HttpExchange> next, std::shared_ptr<RequestRecord> record,
                   std::function<void(RequestRecord&)> on_end)
      : state_(std::make_shared<State>(std::move(record), std::move(on_end))),
        next_(std::move(next)) {}
  ~ObservedExchange() override { state_->end(false); }

  void reply(HttpReply reply) override;
  void start_stream(HttpReply head) override;
  void write(std::string events) override { next_->write(std::move(events)); }
  void end_stream(After after) override;
  void on_disconnect(std::function<void()> gone) override;

 private:
  /// Outlives the exchange: the network thread may tell of a client that went when the answer is done already.
  struct State {
    State(std::shared_ptr<RequestRecord> of, std::function<void(RequestRecord&)> then)
        : record(std::move(of)), on_end(std::move(then)) {}
    void end(bool complete);

    std::shared_ptr<RequestRecord> record;
    std::function<void(RequestRecord&)> on_end;
    std::atomic<bool> ended{false};
  };

  std::shared_ptr<State> state_;
  std::shared_ptr<HttpExchange> next_;
};

}  // namespace switchyard::serve
