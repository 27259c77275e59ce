// SPDX-License-Identifier: Apache-2.0
// Server: OpenAI's endpoints before one engine, and its life: loading -> ready -> draining -> stopped, or dead when
// its engine is.
//
// It listens before the model is loaded, so that /live and /health can say what is going on. The engine is lent: it must
// outlive every call, so the order at the end is stop(), engine, server.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "switchyard/engine.h"

#include "base/metrics.h"
#include "serve/api_key.h"
#include "serve/call.h"
#include "serve/cors.h"
#include "serve/generation.h"
#include "serve/http.h"
#include "serve/rate_limiter.h"
#include "serve/request_log.h"
#include "serve/routing_record.h"
#include "serve/service_rate.h"

namespace switchyard::serve {

struct ServerOptions {
  HttpOptions http;
  std::vector<std::string> served_names;  ///< the first is the one that answers say
  ApiKeys keys;                           ///< none: everybody may ask
  bool open_metrics = false;              ///< /metrics without a key
  UnknownFields unknown_fields = UnknownFields::ignored;
  /// Choices that are in the engine at once, running and waiting; more are answered 429.
  int64_t max_choices = 272;
  int max_running = 16;          ///< of these, how many run in one step; for Retry-After
  double request_timeout_s = 0;  ///< 0: none
  double calls_per_minute = 0;   ///< of each key; 0: no limit
  Cors cors;                     ///< nobody, unless named
  /// Where the engine's on_routed_step goes; null: /v1/moe/record is refused. Must outlive server and engine.
  RoutingRecord* routing_record = nullptr;
  std::string model_hash;     ///< for dumps: of which model they are
  bool vllm_metrics = false;  ///< /metrics under vLLM's names besides
  LogFormat log_format = LogFormat::none;
  /// Gets one line for each request, unless the format is none. Any thread, also the engine's: it must not wait.
  std::function<void(std::string)> request_log;
};

class Server {
 public:
  /// Binds; until serve() every call is answered 503. Errors: Code::unavailable.
  static Result<std::unique_ptr<Server>> open(ServerOptions options);
  ~Server();

  /// The engine is loaded: answers from now on.
  void serve(Engine& engine);
  /// No new calls; those that are in go on.
  void drain();
  /// Calls that are in.
  int64_t in_flight() const noexcept { return calls_.load(); }
  /// False when some are left after that time.
  bool wait_drained(double seconds) const;
  /// The engine is dead: every call ends with that error, and /live and /health say so from now on. Any thread.
  void fail_engine(const std::string& why);
  /// Ends what is left with an error, lets the answers out, and closes.
  void stop();

  uint16_t port() const { return http_->port(); }

 private:
  enum class State : uint8_t { loading, ready, draining, dead };
  struct Arrival;  // a request and its way back
  using Handler = void (Server::*)(Arrival&);
  struct Route {
    const char* method;
    const char* path;
    Handler handle;
    enum class Needs : uint8_t { nothing, key, engine } needs;
  };
  static const Route kRoutes[];

  explicit Server(ServerOptions options);
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  const Route* find_route(Arrival& arrival) const;
  void answer(Arrival& arrival, HttpReply reply);
  void answer(Arrival& arrival, const ApiError& error);
  void add_headers(const Arrival& arrival, HttpReply& reply);
  void register_metrics();
  void count_left(GenerationHooks::Left left);
  void count_refusal(std::string_view code);
  void on_end(RequestRecord& record);
  HttpReply http_refusal(const ApiError& error, const Headers& headers);
  static bool never_waits(std::string_view path);
  std::optional<ApiError> check_caller(Arrival& arrival, const Route& route);
  std::optional<ApiError> check_alive() const;
  bool check_engine(Arrival& arrival);
  void abort_all(const ApiError& error);
  std::optional<ApiError> check_model(const std::string& name) const;

  std::optional<ApiError> check_fields(const Json& json, Endpoint like, std::string_view own) const;

  void live(Arrival& arrival);
  void health(Arrival& arrival);
  void version(Arrival& arrival);
  void metrics(Arrival& arrival);
  void models(Arrival& arrival);
  void model(Arrival& arrival);
  void chat(Arrival& arrival) { complete(arrival, Endpoint::chat); }
  void completions(Arrival& arrival) { complete(arrival, Endpoint::completions); }
  void tokenize(Arrival& arrival);
  void detokenize(Arrival& arrival);
  void render(Arrival& arrival);
  void moe_stats(Arrival& arrival);
  void moe_placement(Arrival& arrival);
  void record_start(Arrival& arrival);
  void record_stop(Arrival& arrival);
  void record_dump(Arrival& arrival);
  void dashboard(Arrival& arrival);
  bool check_record(Arrival& arrival);
  void complete(Arrival& arrival, Endpoint endpoint);

  std::shared_ptr<void> take_place(int64_t choices);
  /// Makes stop() know it; false when that has been already.
  bool remember(const std::shared_ptr<Generation>& generation);

  const ServerOptions options_;
  std::atomic<Engine*> engine_{nullptr};
  std::atomic<State> state_{State::loading};
  std::atomic<int64_t> calls_{0}, choices_{0};
  ServiceRate service_rate_;
  RateLimiter limiter_;
  mutable std::mutex generations_mutex_;
  std::vector<std::weak_ptr<Generation>> generations_;
  std::optional<ApiError> stopped_;  // under generations_mutex_: no more of them, and why
  MetricRegistry registry_;
  const double start_time_s_;         // since 1970
  const int64_t created_;             // the same in whole seconds
  std::unique_ptr<HttpServer> http_;  // last: its threads use all of the above
};

}  // namespace switchyard::serve
