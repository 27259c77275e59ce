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
constexpr double kCrossingSeconds =
    0.05;  // between a request and a close that were sent at the same time
constexpr double kAfterDoneSeconds = 1;  // for the end of a message after its [DONE]

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace

void Connection::send(Call call, Done done) {
  call_ = std::move(call);
  done_ = std::move(done);
  outcome_ = {};
  outcome_.planned_ns = call_.planned_ns;
  ++serial_;
  answer_.emplace(outcome_);
  sse_ = {};
  parser_.emplace();
  parser_->eager(true);
  parser_->body_limit(boost::none);
  buffer_.consume(buffer_.size());
  body_.clear();
  status_ = 0;
  over_ = streams_ = head_seen_ = whole_ = writing_ = false;
  text_ = std::make_shared<const std::string>(std::move(call_.text));
  reused_ = is_usable();
  if (!reused_) close();
  outcome_.sent_ns = now_ns();
  arm();
  reused_ ? write() : connect();
}

/// Open, and nothing has come since the last answer: neither its end nor bytes that nobody asked for.
bool Connection::is_usable() {
  if (!socket_.is_open()) return false;
  ErrorCode error;
  socket_.non_blocking(true, error);
  if (error) return false;
  char byte = 0;
  socket_.receive(asio::buffer(&byte, 1), asio::ip::tcp::socket::message_peek, error);
  return error == asio::error::would_block;
}

void Connection::arm() {
  const auto start = [&](asio::steady_timer& timer, double seconds, auto then) {
    timer.expires_after(duration(seconds));
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
  writing_ = true;
  asio::async_write(
      socket_, asio::buffer(*text_),
      // A server may answer and close before it has read everything: what is read says more than this error.
      [self = shared_from_this(), number = ++writes_, text = text_](const ErrorCode&, size_t) {
        if (number == self->writes_) self->writing_ = false;
      });
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
    if (body_.size() + bytes.size() > kMaxBody) {
      fail("malformed http", "a body of more than 16 MiB");
      return false;
    }
    body_ += bytes;
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
  if (answered()) on_answered(now);
  if (goes_on || answered()) return true;
  finish();
  return false;
}

/// A server that goes on after [DONE] is not waited for.
void Connection::on_answered(int64_t now_ns) {
  outcome_.ended_ns = now_ns;
  cancel_timer_.cancel();
  call_.timeout_s = kAfterDoneSeconds;
  call_.cancel_after_s = -1;
  arm();
}

void Connection::on_end_of_input(const ErrorCode& error) {
  const double passed_s = static_cast<double>(now_ns() - outcome_.sent_ns) * 1e-9;
  if (reused_ && !head_seen_ && buffer_.size() == 0 && passed_s < kCrossingSeconds) {
    reused_ = false;
    outcome_.resent = true;
    close();
    return connect();
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
  whole_ = true;
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
  if (!parser_->is_done() || !parser_->get().keep_alive() || buffer_.size() > 0 || writing_)
    close();
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
