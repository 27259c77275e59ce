// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 on sockets: bounded requests in, whole replies or streams out. Knows nothing of models.
//
// One network thread owns all sockets; handlers run on a few worker threads, because reading a long prompt takes time: all
// but those that never wait.
// A read is pending also while an answer is made, so a client that goes away is noticed while it waits or streams; but for
// one that has sent 64 KiB of further requests already, which is noticed when a write to it fails. Limits: bytes of head
// and body, seconds for each of them, seconds without progress of a write, bytes that a slow reader may be behind.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace switchyard::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< percent-decoded, without the query
  Headers headers;     ///< names in lower case
  std::string body;
  int64_t received_ns = 0;  ///< now_ns() when its last byte had come

  /// The value of the first header of that (lower case) name; empty when there is none.
  std::string_view header(std::string_view name) const noexcept;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  std::string body;
};

inline HttpReply json_reply(std::string body) {
  HttpReply reply;
  reply.body = std::move(body);
  return reply;
}

/// One request's way back. Any thread; the calls of one exchange come from one thread at a time. After the client has
/// gone they do nothing. An exchange that is dropped unanswered closes its connection.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  /// The whole answer. Once, and instead of a stream.
  virtual void reply(HttpReply reply) = 0;
  /// The head of a stream of server-sent events; its body is ignored.
  virtual void start_stream(HttpReply head) = 0;
  virtual void write(std::string events) = 0;
  enum class After : uint8_t { keep_alive, close };
  virtual void end_stream(After after) = 0;
  /// Called once from the network thread when the client goes before the end, or has gone already.
  virtual void on_disconnect(std::function<void()> gone) = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  ///< 0: one that is free
  size_t header_bytes = size_t{8} << 10;
  size_t body_bytes = size_t{8} << 20;
  double header_s = 10, body_s = 60, idle_s = 75, write_stall_s = 60;
  double ping_s = 15;             ///< a stream that is silent this long gets a comment
  size_t connections = 1024;      ///< of those beyond, probe_connections may ask what never waits
  size_t probe_connections = 16;  ///< and the next one is answered 503 and closed
  size_t backlog_bytes = size_t{1} << 20;  ///< unsent bytes of a stream before it is cut
  int workers = 4;
};

/// Runs on a worker thread; for paths that never wait, on the network thread.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)>;
/// Paths whose handler is quick and waits for nothing: they are answered also when all workers are at work.
using HttpNeverWaits = std::function<bool(std::string_view path)>;
/// The answer to an error that HTTP itself found, of a request whose headers may have come. Network thread.
using HttpRefusal = std::function<HttpReply(int status, std::string_view code,
                                            std::string_view message, const Headers& headers)>;

struct HttpCounts {
  int64_t idle = 0, active = 0, streaming = 0;  ///< connections
};

class HttpServer {
 public:
  /// Binds. Errors: Code::unavailable when the address cannot be bound.
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, HttpHandler handler,
                                                  HttpNeverWaits never_waits, HttpRefusal refusal);
  virtual ~HttpServer() = default;
  /// Accepts from now on.
  virtual void start() = 0;
  virtual uint16_t port() const = 0;
  virtual HttpCounts counts() const = 0;
  /// No new connections; waits for answers that are on their way, but no longer than that, then closes everything.
  virtual void stop(double grace_s) = 0;
};

}  // namespace switchyard::serve
