// SPDX-License-Identifier: Apache-2.0
// The listener: accepts, counts, and ends sessions.
#include "serve/http.h"

#include <chrono>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <pthread.h>

#include "serve/http_session.h"

namespace switchyard::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Listener final : public HttpServer {
 public:
  Listener(const HttpOptions& options, HttpHandler handler, HttpNeverWaits never_waits,
           HttpRefusal refusal)
      : workers_(static_cast<size_t>(options.workers)),
        acceptor_(network_),
        retry_(network_),
        keep_running_(network_.get_executor()) {
    context_.options = options;
    context_.handler = std::move(handler);
    context_.never_waits = std::move(never_waits);
    context_.refusal = std::move(refusal);
    context_.run_on_worker = [this](std::function<void()> work) {
      asio::post(workers_, std::move(work));
    };
  }
  ~Listener() override { stop(0); }

  Status bind();
  void start() override;
  uint16_t port() const override { return port_; }
  HttpCounts counts() const override {
    const int64_t all = context_.connections, active = context_.active;
    const int64_t streaming = context_.streaming;
    return {all - active, active - streaming, streaming};
  }
  void stop(double grace_s) override;

 private:
  void accept();
  void on_accept(const ErrorCode& error, tcp::socket socket);
  void turn_away(tcp::socket& socket) const;
  void finish_sessions();

  SessionContext context_;
  asio::io_context network_{1};
  asio::thread_pool workers_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::executor_work_guard<asio::io_context::executor_type> keep_running_;
  std::vector<std::weak_ptr<Session>>
      sessions_;  // network thread; gone ones are swept now and then
  size_t sweep_at_ = 64;
  uint16_t port_ = 0;
  std::thread thread_;
};

Status Listener::bind() {
  const auto& options = context_.options;
  const auto failed = [&](const ErrorCode& error, const char* what) {
    return fail(Code::unavailable, "cannot {} {}:{}: {}; choose another --host or --port", what,
                options.host, options.port, error.message());
  };
  ErrorCode error;
  const auto address = asio::ip::make_address(options.host, error);
  if (error) return failed(error, "understand the address");
  const tcp::endpoint endpoint(address, options.port);
  if (acceptor_.open(endpoint.protocol(), error)) return failed(error, "open a socket for");
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (acceptor_.bind(endpoint, error)) return failed(error, "bind");
  if (acceptor_.listen(asio::socket_base::max_listen_connections, error))
    return failed(error, "listen on");
  port_ = acceptor_.local_endpoint(error).port();
  return {};
}

void Listener::start() {
  accept();
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "switchyard-http");
    network_.run();
  });
}

void Listener::accept() {
  acceptor_.async_accept(
      [this](const ErrorCode& error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void Listener::on_accept(const ErrorCode& error, tcp::socket socket) {
  if (!acceptor_.is_open()) return;
  if (error) {  // out of file descriptors, say: breathe, then go on
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this](const ErrorCode& stopped) {
      if (!stopped) accept();
    });
    return;
  }
  const auto room = static_cast<int64_t>(context_.options.connections) - context_.connections;
  if (room <= -static_cast<int64_t>(context_.options.probe_connections)) {
    turn_away(socket);
  } else {
    const auto session = std::make_shared<Session>(
        std::move(socket), context_, room > 0 ? Session::May::ask_all : Session::May::probe);
    if (sessions_.size() >= sweep_at_) {
      std::erase_if(sessions_, [](const auto& known) { return known.expired(); });
      sweep_at_ = 2 * sessions_.size() + 64;
    }
    sessions_.push_back(session);
    session->start();
  }
  accept();
}

/// One write that must not block; the kernel's buffer of a new connection has the room.
void Listener::turn_away(tcp::socket& socket) const {
  HttpReply reply = context_.refusal(503, "too_many_connections",
                                     "the server has no room for more connections", {});
  ErrorCode ignored;
  socket.non_blocking(true, ignored);
  const std::string text = head_text(reply, {HeadShape::Length::fixed, false}) + reply.body;
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void Listener::finish_sessions() {
  ErrorCode ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  for (const auto& weak : sessions_)
    if (const auto session = weak.lock()) session->finish_soon();
}

void Listener::stop(double grace_s) {
  if (!thread_.joinable()) return;
  context_.stopping = true;
  asio::post(network_, [this] { finish_sessions(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(grace_s);
  while (context_.connections > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  workers_.stop();
  workers_.join();
  asio::post(network_, [this] {
    for (const auto& weak : sessions_)
      if (const auto session = weak.lock()) session->close();
    keep_running_.reset();
  });
  thread_.join();
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options,
                                                     HttpHandler handler,
                                                     HttpNeverWaits never_waits,
                                                     HttpRefusal refusal) {
  auto listener = std::make_unique<Listener>(options, std::move(handler), std::move(never_waits),
                                             std::move(refusal));
  SWITCHYARD_TRY(listener->bind());
  return std::unique_ptr<HttpServer>(std::move(listener));
}

}  // namespace switchyard::serve
