// SPDX-License-Identifier: Apache-2.0
// RequestReader: the bytes of a connection become requests, one after the other, or a refusal. No sockets and no time.
//
// Beast parses; what it lets through and we do not is refused here: each is a way to smuggle a second request, cannot be
// served, or has no bound.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "serve/http.h"

namespace switchyard::serve {

class RequestReader {
 public:
  /// Bounds of a head, of the line of a chunk and of trailers; and of a body.
  RequestReader(size_t header_bytes, size_t body_bytes)
      : header_bytes_(header_bytes), body_bytes_(body_bytes) {
    begin();
  }

  /// The next request: what is buffered are its first bytes.
  void begin();
  void push(const char* bytes, size_t count);
  size_t buffered() const noexcept { return buffer_.size(); }
  void drop_buffered() { buffer_.consume(buffer_.size()); }

  enum class State : uint8_t { waiting, complete, refused };
  /// Takes what is buffered, but nothing beyond the end of the request.
  State advance();

  bool has_head() const noexcept { return has_head_; }
  /// True once, when the client waits for "100 Continue" before it sends the body.
  bool take_continue() noexcept { return std::exchange(continue_, false); }

  struct Refusal {
    int status = 400;
    std::string_view code;
    std::string message;
  };
  const Refusal& refusal() const noexcept { return refusal_; }
  /// Of the request that is being read, once its head is there.
  const Headers& headers() const noexcept { return headers_; }

  // Of a complete request.
  HttpRequest take();
  bool keep_alive() const noexcept { return keep_alive_; }
  bool is_head() const noexcept { return is_head_; }
  bool may_chunk() const noexcept { return may_chunk_; }  ///< the client knows chunked answers

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  State check_head();
  void keep_headers();
  State finish();
  State refuse(int status, std::string_view code, std::string message);
  State refuse_parse(const boost::system::error_code& error);

  const size_t header_bytes_, body_bytes_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  size_t head_taken_ = 0;  // bytes of the head so far
  bool has_head_ = false, continue_ = false;
  bool keep_alive_ = false, is_head_ = false, may_chunk_ = false;
  Headers headers_;  // of the head, once it is there
  HttpRequest request_;
  Refusal refusal_;
};

}  // namespace switchyard::serve
