// SPDX-License-Identifier: Apache-2.0
#include "serve/request_reader.h"

#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>

#include "serve/http_text.h"

namespace switchyard::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void RequestReader::begin() {
  has_head_ = continue_ = false;
  head_taken_ = 0;
  headers_.clear();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(header_bytes_));
  parser_->body_limit(body_bytes_);
  parser_->eager(false);  // first the head alone
}

void RequestReader::push(const char* bytes, size_t count) {
  buffer_.commit(asio::buffer_copy(buffer_.prepare(count), asio::buffer(bytes, count)));
}

RequestReader::State RequestReader::advance() {
  while (!parser_->is_done() && buffer_.size() > 0) {
    // Beast asserts that many bytes of a last chunk; as no chunked body ends with fewer, they will come.
    if (has_head_ && parser_->chunked() && buffer_.size() < kLastChunk.size()) break;
    boost::system::error_code error;
    const size_t taken = parser_->put(buffer_.data(), error);
    buffer_.consume(taken);
    // Beast's bound is for what it looks at in one call: a head that comes in pieces could have it more than once.
    if (!has_head_ && (head_taken_ += taken) > header_bytes_) error = http::error::header_limit;
    if (error == http::error::need_more) {
      // Beast bounds the head, but neither the line of a chunk nor the trailers.
      if (buffer_.size() <= header_bytes_) break;
      error = http::error::header_limit;
    }
    if (error) return refuse_parse(error);
    if (!parser_->is_header_done() || has_head_) continue;
    has_head_ = true;
    if (check_head() == State::refused) return State::refused;
  }
  return parser_->is_done() ? finish() : State::waiting;
}

RequestReader::State RequestReader::check_head() {
  const auto& head = parser_->get();
  const auto count = [&](http::field field) { return head.count(field); };
  keep_headers();  // now, since the trailers of a chunked body would join them
  if (count(http::field::content_length) > 1 || count(http::field::transfer_encoding) > 1 ||
      (count(http::field::content_length) > 0 && count(http::field::transfer_encoding) > 0))
    return refuse(400, "invalid_http", "the length of the body is given more than once");
  if (count(http::field::transfer_encoding) > 0 &&
      (head.version() < 11 || lower(view(head[http::field::transfer_encoding])) != "chunked"))
    return refuse(400, "invalid_http",
                  "the only transfer encoding that is served is chunked, of HTTP/1.1");
  if (head.version() != 10 && count(http::field::host) != 1)
    return refuse(400, "invalid_http", "expected one Host header");
  if (head.method() == http::verb::post && !parser_->content_length() && !parser_->chunked())
    return refuse(411, "length_required", "a POST needs Content-Length or chunked encoding");
  if (count(http::field::content_encoding) > 0 &&
      lower(view(head[http::field::content_encoding])) != "identity")
    return refuse(415, "unsupported_media_type", "compressed bodies are not accepted");
  keep_alive_ = head.keep_alive();
  may_chunk_ = head.version() >= 11;
  is_head_ = head.method() == http::verb::head;
  parser_->eager(true);
  continue_ = lower(view(head[http::field::expect])) == "100-continue" && !parser_->is_done() &&
              buffer_.size() == 0;
  return State::waiting;
}

void RequestReader::keep_headers() {
  for (const auto& field : parser_->get())
    headers_.emplace_back(lower(view(field.name_string())), view(field.value()));
}

RequestReader::State RequestReader::finish() {
  auto message = parser_->release();
  auto path = path_of(view(message.target()));
  if (!path) return refuse(400, "invalid_http", "the request target is not a plain path");
  request_ = {};
  request_.method = std::string(view(message.method_string()));
  request_.path = *std::move(path);
  request_.headers = headers_;
  request_.body = std::move(message.body());
  return State::complete;
}

HttpRequest RequestReader::take() { return std::exchange(request_, {}); }

RequestReader::State RequestReader::refuse(int status, std::string_view code, std::string message) {
  refusal_ = {status, code, std::move(message)};
  return State::refused;
}

RequestReader::State RequestReader::refuse_parse(const boost::system::error_code& error) {
  if (!has_head_) keep_headers();  // as far as they came: the answer may depend on them
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(431, "headers_too_large", "the request line, headers or trailers are too long");
  if (error == http::error::body_limit)
    return refuse(413, "body_too_large", "the body is larger than this server takes");
  return refuse(400, "invalid_http", "malformed HTTP: " + error.message());
}

}  // namespace switchyard::serve
