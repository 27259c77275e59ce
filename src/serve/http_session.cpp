// SPDX-License-Identifier: Apache-2.0
#include "serve/http_session.h"

#include <chrono>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.h"

namespace switchyard::serve {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxPipelined = size_t{64} << 10;  // of the next request, while one is answered
constexpr double kLingerSeconds = 2;
constexpr double kProbeSeconds = 2;  // for the first byte of a probe
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kPing = ": ping\n\n";

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, SessionContext& context, May may)
    : context_(context),
      may_(may),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      stall_timer_(socket_.get_executor()),
      reader_(context.options.header_bytes, context.options.body_bytes) {
  ErrorCode ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  ++context_.connections;
}

Session::~Session() {
  close();
  --context_.connections;
}

void Session::begin_request() {
  phase_ = Phase::reading;
  request_begun_ = false;
  reader_.begin();
  if (reader_.buffered() > 0) return parse();
  if (context_.stopping) return close();
  arm(may_ == May::probe ? kProbeSeconds : context_.options.idle_s);
  read();
}

void Session::read() {
  if (reading_ || phase_ == Phase::closed) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(inbox_),
                          [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                            self->reading_ = false;
                            self->on_read(error, bytes);
                          });
}

void Session::on_read(const ErrorCode& error, size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) return close();
  reader_.push(inbox_.data(), bytes);
  switch (phase_) {
    case Phase::reading:
      return parse();
    case Phase::busy:
      return read_ahead();
    case Phase::lingering:
      reader_.drop_buffered();
      return read();
    case Phase::closed:
      return;
  }
}

void Session::parse() {
  if (!request_begun_) arm(context_.options.header_s);
  request_begun_ = true;
  const bool had_head = reader_.has_head();
  const RequestReader::State state = reader_.advance();
  if (state == RequestReader::State::refused) {
    const RequestReader::Refusal& why = reader_.refusal();
    return refuse(why.status, why.code, why.message);
  }
  if (state == RequestReader::State::complete) return dispatch();
  if (!had_head && reader_.has_head()) arm(context_.options.body_s);
  if (reader_.take_continue()) send(kContinue);
  read();
}

/// Answers and closes: after a request that was not understood, nothing that follows can be trusted.
void Session::refuse(int status, std::string_view code, std::string_view message) {
  phase_ = Phase::busy;
  ++serial_;
  ++context_.active;
  timer_.cancel();
  keep_alive_ = chunked_ = is_head_request_ = false;
  response_ended_ = false;
  reply(serial_, context_.refusal(status, code, message, reader_.headers()));
}

void Session::dispatch() {
  HttpRequest request = reader_.take();
  if (may_ == May::probe && !context_.never_waits(request.path))
    return refuse(503, "too_many_connections", "the server has no room for more connections");
  request.received_ns = now_ns();
  phase_ = Phase::busy;
  ++serial_;
  ++context_.active;
  timer_.cancel();
  is_head_request_ = reader_.is_head();
  chunked_ = reader_.may_chunk();
  keep_alive_ = reader_.keep_alive() && !context_.stopping && may_ == May::ask_all;
  response_ended_ = false;
  auto exchange = std::make_shared<SessionExchange>(shared_from_this(), serial_);
  if (context_.never_waits(request.path)) {
    context_.handler(std::move(request), std::move(exchange));
  } else {
    context_.run_on_worker(
        [handler = &context_.handler, request = std::move(request), exchange]() mutable {
          (*handler)(std::move(request), std::move(exchange));
        });
  }
  read_ahead();
}

/// While an answer is made: the next requests, up to a bound; begin_request() goes on with them.
void Session::read_ahead() {
  if (reader_.buffered() < kMaxPipelined) read();
}

void Session::reply(uint64_t serial, const HttpReply& reply) {
  if (!is_current(serial) || response_ended_) return;
  send(head_text(reply, {HeadShape::Length::fixed, keep_alive_}));
  if (!is_head_request_) send(reply.body);
  end_response();
}

void Session::start_stream(uint64_t serial, const HttpReply& head) {
  if (!is_current(serial) || response_ended_ || streaming_) return;
  if (!chunked_) keep_alive_ = false;
  set_streaming(true);
  send(head_text(
      head, {chunked_ ? HeadShape::Length::chunked : HeadShape::Length::until_close, keep_alive_}));
  arm(context_.options.ping_s);
}

void Session::write(uint64_t serial, std::string_view events) {
  if (!is_current(serial) || !streaming_ || response_ended_ || events.empty()) return;
  // A reader this far behind would cost memory without a bound.
  if (queued_.size() + sending_.size() - sent_ + events.size() > context_.options.backlog_bytes)
    return close();
  send(chunked_ ? chunk_text(events) : std::string(events));
}

void Session::end_stream(uint64_t serial, HttpExchange::After after) {
  if (!is_current(serial) || !streaming_ || response_ended_) return;
  if (after == HttpExchange::After::close) keep_alive_ = false;
  if (chunked_) send(kLastChunk);
  set_streaming(false);
  end_response();
}

void Session::on_disconnect(uint64_t serial, std::function<void()> gone) {
  if (phase_ == Phase::closed && serial == serial_ && !response_ended_) return gone();
  if (is_current(serial) && !response_ended_) gone_ = std::move(gone);
}

void Session::dropped(uint64_t serial) {
  if (is_current(serial) && !response_ended_) close();
}

void Session::send(std::string_view text) {
  last_sent_ns_ = now_ns();
  queued_ += text;
  if (!writing_) write_some();
}

void Session::write_some() {
  if (phase_ == Phase::closed) return;
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    std::swap(sending_, queued_);
  }
  writing_ = !sending_.empty();
  if (!writing_) {
    stall_timer_.cancel();
    if (phase_ == Phase::busy && response_ended_) end_response();
    return;
  }
  arm_stall();
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                             self->on_written(error, bytes);
                           });
}

void Session::on_written(const ErrorCode& error, size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) return close();
  sent_ += bytes;
  write_some();
}

/// The answer is complete; when all of it has left, the connection goes on or ends.
void Session::end_response() {
  response_ended_ = true;
  gone_ = nullptr;
  if (writing_) return;
  --context_.active;
  timer_.cancel();
  if (keep_alive_ && !context_.stopping) return begin_request();
  linger();
}

/// A close with unread bytes would make the kernel throw away the answer, so the client's rest is read and dropped.
void Session::linger() {
  phase_ = Phase::lingering;
  reader_.drop_buffered();
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  arm(kLingerSeconds);
  read();
}

void Session::finish_soon() {
  if (phase_ == Phase::reading && !request_begun_) close();
}

void Session::close() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::busy) --context_.active;
  set_streaming(false);
  phase_ = Phase::closed;
  timer_.cancel();
  stall_timer_.cancel();
  ErrorCode ignored;
  socket_.close(ignored);
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
}

void Session::set_streaming(bool on) {
  if (streaming_ != on) context_.streaming += on ? 1 : -1;
  streaming_ = on;
}

void Session::arm(double seconds) {
  timer_.expires_after(duration(seconds));
  timer_.async_wait([weak = weak_from_this()](const ErrorCode& error) {
    const auto self = weak.lock();
    // A handler that was on its way when the timer was set anew is none of the new wait's.
    if (self && !error && self->timer_.expiry() <= std::chrono::steady_clock::now())
      self->on_timer();
  });
}

void Session::on_timer() {
  switch (phase_) {
    case Phase::reading:
      if (!request_begun_) return close();
      return refuse(408, "request_timeout", "the request did not arrive in time");
    case Phase::busy: {
      if (!streaming_) return;
      const double silent_s = static_cast<double>(now_ns() - last_sent_ns_) * 1e-9;
      if (silent_s >= context_.options.ping_s * 0.99) write(serial_, kPing);
      if (phase_ == Phase::busy) arm(context_.options.ping_s);
      return;
    }
    case Phase::lingering:
      return close();
    case Phase::closed:
      return;
  }
}

void Session::arm_stall() {
  stall_timer_.expires_after(duration(context_.options.write_stall_s));
  stall_timer_.async_wait([weak = weak_from_this()](const ErrorCode& error) {
    const auto self = weak.lock();
    if (self && !error && self->stall_timer_.expiry() <= std::chrono::steady_clock::now())
      self->close();
  });
}

SessionExchange::~SessionExchange() {
  asio::post(session_->get_executor(),
             [session = session_, serial = serial_] { session->dropped(serial); });
}

void SessionExchange::reply(HttpReply reply) {
  asio::post(session_->get_executor(),
             [session = session_, serial = serial_, reply = std::move(reply)] {
               session->reply(serial, reply);
             });
}

void SessionExchange::start_stream(HttpReply head) {
  asio::post(session_->get_executor(),
             [session = session_, serial = serial_, head = std::move(head)] {
               session->start_stream(serial, head);
             });
}

void SessionExchange::write(std::string events) {
  asio::post(session_->get_executor(),
             [session = session_, serial = serial_, events = std::move(events)] {
               session->write(serial, events);
             });
}

void SessionExchange::end_stream(After after) {
  asio::post(session_->get_executor(),
             [session = session_, serial = serial_, after] { session->end_stream(serial, after); });
}

void SessionExchange::on_disconnect(std::function<void()> gone) {
  asio::post(session_->get_executor(),
             [session = session_, serial = serial_, gone = std::move(gone)]() mutable {
               session->on_disconnect(serial, std::move(gone));
             });
}

}  // namespace switchyard::serve
