// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>

#include "base/clock.h"

namespace switchyard::client {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kMaxBody = size_t{16} << 20;  // of an answer that is no stream
constexpr double kMaxRetryAfter = 60;

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace

void Connection::send(Call call, Done done) {
  call_ = std::move(call);
  done_ = std::move(done);
  outcome_ = {};
  outcome_.planned_ns = call_.planned_ns;
  outcome_.sent_ns = now_ns();
  over_ = false;
  reused_ = socket_.is_open();
  attempt();
}

void Connection::attempt() {
  ++serial_;
  answer_.emplace(outcome_);
  sse_ = {};
  parser_.emplace();
  parser_->eager(true);
  parser_->body_limit(boost::none);
  buffer_.consume(buffer_.size());
  body_.clear();
  status_ = 0;
  streams_ = head_seen_ = false;
  arm();
  reused_ ? write() : connect();
}

/// Both limits of the call run from its begin, so a second attempt does not prolong them.
void Connection::arm() {
  const auto passed = std::chrono::nanoseconds(now_ns() - outcome_.sent_ns);
  const auto start = [&](asio::steady_timer& timer, double seconds, auto then) {
    timer.expires_after(duration(seconds) - passed);
    timer.async_wait([self = shared_from_this(), serial = serial_, then](const ErrorCode& error) {
      if (!error && serial == self->serial_ && !self->over_) then(*self);
    });
  };
  start(timer_, call_.timeout_s, [](Connection& self) {
    self.fail("timeout", fmt::format("no end after {} s", self.call_.timeout_s));
  });
  if (call_.cancel_after_s >= 0)
    start(cancel_timer_, call_.cancel_after_s, [](Connection& self) { self.cancel(); });
}

void Connection::connect() {
  asio::async_connect(socket_, endpoints_,
                      [self = shared_from_this(), serial = serial_](
                          const ErrorCode& error, const asio::ip::tcp::endpoint&) {
                        if (serial != self->serial_ || self->over_) return;
                        if (error) return self->fail("connect", error.message());
                        ErrorCode ignored;
                        self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
                        self->write();
                      });
}

void Connection::write() {
  asio::async_write(
      socket_, asio::buffer(call_.text),
      // A server may answer and close before it has read everything: what is read says more than this error.
      [self = shared_from_this()](const ErrorCode&, size_t) {});
  read();
}

void Connection::read() {
  socket_.async_read_some(asio::buffer(inbox_), [self = shared_from_this(), serial = serial_](
                                                    const ErrorCode& error, size_t bytes) {
    if (serial == self->serial_ && !self->over_) self->on_read(error, bytes);
  });
}

void Connection::on_read(const ErrorCode& error, size_t bytes) {
  if (error) return on_end_of_input(error);
  buffer_.commit(asio::buffer_copy(buffer_.prepare(bytes), asio::buffer(inbox_), bytes));
  parse();
}

void Connection::parse() {
  while (!parser_->is_done() && buffer_.size() > 0) {
    ErrorCode error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    const bool waits = error == http::error::need_more;  // also when body has come with it
    if (error && !waits) return fail("malformed http", error.message());
    if (parser_->is_header_done() && !head_seen_) on_head();
    if (head_seen_ && !take_body()) return;
    if (waits) break;
  }
  if (parser_->is_done()) return end_of_message();
  read();
}

void Connection::on_head() {
  head_seen_ = true;
  const auto& head = parser_->get();
  status_ = head.result_int();
  const auto type = head[http::field::content_type];
  streams_ = status_ == 200 && type.starts_with("text/event-stream");
  const std::string wait(head[http::field::retry_after]);
  outcome_.retry_after_s = std::clamp(std::atof(wait.c_str()), 0.0, kMaxRetryAfter);
}

/// False when the request is over.
bool Connection::take_body() {
  std::string bytes = std::exchange(parser_->get().body(), {});
  if (!streams_) {
    body_ += bytes.substr(0, kMaxBody - std::min(body_.size(), kMaxBody));
    return true;
  }
  if (answered()) return true;  // what follows [DONE] is read for the sake of the connection alone
  const int64_t now = now_ns();
  const bool goes_on = sse_.push(bytes, [&](std::string_view data) {
    const int64_t before = outcome_.text_events;
    const bool more = answer_->take(data, now);
    if (outcome_.text_events > before) on_text_(now);
    return more;
  });
  if (sse_.overflowed()) {
    fail("malformed event", "an event of more than 4 MiB");
    return false;
  }
  if (goes_on && call_.cancel_at_text >= 0 && outcome_.text_events >= call_.cancel_at_text) {
    cancel();
    return false;
  }
  if (answered()) outcome_.ended_ns = now;
  if (goes_on || answered()) return true;
  finish();
  return false;
}

void Connection::on_end_of_input(const ErrorCode& error) {
  if (reused_ && !head_seen_ && buffer_.size() == 0) {  // it was closed while it rested
    close();
    reused_ = false;
    return attempt();
  }
  ErrorCode incomplete;
  if (error == asio::error::eof && head_seen_) parser_->put_eof(incomplete);
  if (error != asio::error::eof || !head_seen_ || incomplete)
    return fail("cut", error == asio::error::eof ? "the server closed the connection mid-answer"
                                                 : error.message());
  if (!take_body()) return;
  end_of_message();
}

void Connection::end_of_message() {
  if (!streams_) {
    describe_refusal(status_, body_, outcome_);
  } else if (!answered()) {
    answer_->end_of_stream();
  }
  finish();
}

void Connection::fail(std::string_view kind, std::string_view detail) {
  if (!answered()) answer_->fail(kind, detail);
  finish();
}

void Connection::cancel() {
  if (!answered()) outcome_.end = Outcome::End::cancelled;
  finish();
}

void Connection::finish() {
  over_ = true;
  timer_.cancel();
  cancel_timer_.cancel();
  if (outcome_.ended_ns == 0) outcome_.ended_ns = now_ns();
  if (!parser_->is_done() || !parser_->get().keep_alive() || buffer_.size() > 0) close();
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    const Done done = std::exchange(self->done_, nullptr);
    done(std::move(self->outcome_));
  });
}

void Connection::close() {
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace switchyard::client
