// SPDX-License-Identifier: Apache-2.0
// Session: one connection, request after request. Network thread alone, but for what SessionExchange posts to it.
//
//   reading -> (request complete) -> busy -> (answer written) -> reading ... -> lingering -> closed
// While busy it goes on reading: bytes are kept for the next requests, 64 KiB of them, and the end of the stream is the
// client's farewell.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "serve/http.h"
#include "serve/http_text.h"
#include "serve/request_reader.h"

namespace switchyard::serve {

/// What all sessions of a server share.
struct SessionContext {
  HttpOptions options;
  HttpHandler handler;
  HttpRefusal refusal;
  HttpNeverWaits never_waits;
  std::function<void(std::function<void()>)> run_on_worker;
  std::atomic<int64_t> connections{0}, active{0}, streaming{0};
  std::atomic<bool> stopping{false};
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  /// A session that came when all places were taken may ask once, and what never waits: an orchestrator must not take a
  /// full server for a dead one.
  enum class May : uint8_t { ask_all, probe };
  Session(boost::asio::ip::tcp::socket socket, SessionContext& context, May may);
  ~Session();

  void start() { begin_request(); }
  /// Closes as soon as no answer is on its way.
  void finish_soon();
  void close();

  // What an exchange asks for; `serial` is its request's, and stale calls do nothing.
  void reply(uint64_t serial, const HttpReply& reply);
  void start_stream(uint64_t serial, const HttpReply& head);
  void write(uint64_t serial, std::string_view events);
  void end_stream(uint64_t serial, HttpExchange::After after);
  void on_disconnect(uint64_t serial, std::function<void()> gone);
  void dropped(uint64_t serial);

  auto get_executor() { return socket_.get_executor(); }

 private:
  enum class Phase : uint8_t { reading, busy, lingering, closed };
  using ErrorCode = boost::system::error_code;

  void begin_request();
  void read();
  void read_ahead();
  void on_read(const ErrorCode& error, size_t bytes);
  void parse();
  void refuse(int status, std::string_view code, std::string_view message);
  void dispatch();
  void send(std::string_view text);
  void write_some();
  void on_written(const ErrorCode& error, size_t bytes);
  void end_response();
  void linger();
  void set_streaming(bool on);
  void arm(double seconds);
  void on_timer();
  void arm_stall();
  bool is_current(uint64_t serial) const { return phase_ == Phase::busy && serial == serial_; }

  SessionContext& context_;
  const May may_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_, stall_timer_;
  std::array<char, size_t{8} << 10> inbox_;  // what a pending read writes to
  RequestReader reader_;
  Phase phase_ = Phase::reading;
  bool reading_ = false, request_begun_ = false;

  // Of the request that is answered.
  uint64_t serial_ = 0;
  bool is_head_request_ = false, chunked_ = false, keep_alive_ = false;
  bool streaming_ = false, response_ended_ = false;
  int64_t last_sent_ns_ = 0;
  std::function<void()> gone_;

  std::string queued_, sending_;
  size_t sent_ = 0;  // of sending_
  bool writing_ = false;
};

/// The handler's end of a session.
class SessionExchange final : public HttpExchange {
 public:
  SessionExchange(std::shared_ptr<Session> session, uint64_t serial)
      : session_(std::move(session)), serial_(serial) {}
  ~SessionExchange() override;
  void reply(HttpReply reply) override;
  void start_stream(HttpReply head) override;
  void write(std::string events) override;
  void end_stream(After after) override;
  void on_disconnect(std::function<void()> gone) override;

 private:
  std::shared_ptr<Session> session_;
  uint64_t serial_;
};

}  // namespace switchyard::serve
