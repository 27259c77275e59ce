// SPDX-License-Identifier: Apache-2.0
// Connection: one request at a time over one socket that is kept open where the server allows it. All on the thread that
// runs the io_context.
//
// Before a connection is used again it is looked at: one that the server has closed in the meantime is opened anew. Should
// the close cross with the request (it comes within 50 ms, and without a byte of an answer), the request is sent again,
// once, and that is counted; everything else that goes wrong is an outcome.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "client/answer.h"
#include "client/outcome.h"
#include "client/sse.h"

namespace switchyard::client {

using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

/// What is sent, and when we give up. Negative: never.
struct Call {
  std::string text;             ///< head and body
  double timeout_s = 600;       ///< from its begin to its end
  double cancel_after_s = -1;   ///< we leave after that time
  int64_t cancel_at_text = -1;  ///< we leave when that many events with text have come
  int64_t planned_ns = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Done = std::function<void(Outcome&&)>;
  /// Called with every event that has text.
  using OnText = std::function<void(int64_t now_ns)>;

  Connection(boost::asio::io_context& context, const Endpoints& endpoints, OnText on_text)
      : endpoints_(endpoints),
        socket_(context),
        timer_(context),
        cancel_timer_(context),
        on_text_(std::move(on_text)) {}

  /// `done` is called once, not from within.
  void send(Call call, Done done);
  /// The body of an answer that is no stream, after a send; and whether the message came to its end.
  const std::string& body() const noexcept { return body_; }
  bool is_whole() const noexcept { return whole_; }
  int status() const noexcept { return status_; }
  void close();

 private:
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;

  bool is_usable();
  void connect();
  void write();
  void read();
  void on_read(const ErrorCode& error, size_t bytes);
  void parse();
  void on_head();
  bool take_body();
  void on_end_of_input(const ErrorCode& error);
  void on_answered(int64_t now_ns);
  void end_of_message();
  void arm();
  void fail(std::string_view kind, std::string_view detail);
  void cancel();
  void finish();
  bool answered() const noexcept { return outcome_.end == Outcome::End::answered; }

  const Endpoints& endpoints_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_, cancel_timer_;
  OnText on_text_;
  std::array<char, size_t{16} << 10> inbox_;
  boost::beast::flat_buffer buffer_;

  // Of the request.
  uint64_t serial_ = 0;  // old handlers see that they are none of its
  Call call_;
  Done done_;
  Outcome outcome_;
  std::optional<AnswerReader> answer_;
  SseParser sse_;
  std::optional<Parser> parser_;
  std::string body_;
  int status_ = 0;
  bool streams_ = false, head_seen_ = false, whole_ = false, over_ = true;
  bool reused_ = false;
  std::shared_ptr<const std::string> text_;  // of the request, for the writes that may be pending
  uint64_t writes_ = 0;                      // begun so far; old ones see that they are none of its
  bool writing_ = false;  // the request is not out yet; its socket is of no use for another one
};

}  // namespace switchyard::client
