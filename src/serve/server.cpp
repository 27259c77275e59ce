// SPDX-License-Identifier: Apache-2.0
// From a request to its handler: the table of routes, who may ask, and what every answer carries.
#include "serve/server.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "serve/arrival.h"
#include "serve/observed_exchange.h"
#include "serve/request_log.h"

namespace switchyard::serve {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr double kIdleSeconds = 10;  // for cancelled calls to end
constexpr double kFlushSeconds = 5;  // for the last answers to leave

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

constexpr const char* kAnswers = "switchyard_http_requests_total";
constexpr const char* kAnswersHelp = "Answers, by route, method and status";

/// "/v1/models/*" takes everything below it.
bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return path == pattern;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

bool is_json_body(const HttpRequest& request) {
  const std::string_view type = request.header("content-type");
  std::string lower(type.substr(0, type.find(';')));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  while (lower.ends_with(' ')) lower.pop_back();
  return lower.empty() || lower == "application/json";
}

}  // namespace

const Server::Route Server::kRoutes[] = {
    {"GET", "/live", &Server::live, Route::Needs::nothing},
    {"GET", "/health", &Server::health, Route::Needs::nothing},
    {"GET", "/", &Server::dashboard, Route::Needs::nothing},
    {"GET", "/dashboard/style.css", &Server::dashboard, Route::Needs::nothing},
    {"GET", "/dashboard/data.js", &Server::dashboard, Route::Needs::nothing},
    {"GET", "/dashboard/charts.js", &Server::dashboard, Route::Needs::nothing},
    {"GET", "/dashboard/dashboard.js", &Server::dashboard, Route::Needs::nothing},
    {"GET", "/version", &Server::version, Route::Needs::key},
    {"GET", "/metrics", &Server::metrics, Route::Needs::key},
    {"GET", "/models", &Server::models, Route::Needs::engine},
    {"GET", "/v1/models", &Server::models, Route::Needs::engine},
    {"GET", "/v1/models/*", &Server::model, Route::Needs::engine},
    {"GET", "/v1/moe/stats", &Server::moe_stats, Route::Needs::engine},
    {"GET", "/v1/moe/placement", &Server::moe_placement, Route::Needs::engine},
    {"POST", "/v1/moe/record/start", &Server::record_start, Route::Needs::engine},
    {"POST", "/v1/moe/record/stop", &Server::record_stop, Route::Needs::engine},
    {"POST", "/v1/moe/record/dump", &Server::record_dump, Route::Needs::engine},
    {"POST", "/v1/chat/completions", &Server::chat, Route::Needs::engine},
    {"POST", "/v1/chat/completions/render", &Server::render, Route::Needs::engine},
    {"POST", "/v1/completions", &Server::completions, Route::Needs::engine},
    {"POST", "/tokenize", &Server::tokenize, Route::Needs::engine},
    {"POST", "/detokenize", &Server::detokenize, Route::Needs::engine},
};

ApiError draining() { return {503, "draining", "the server is shutting down", ""}; }

std::string new_id() {
  static const uint64_t start = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  static std::atomic<uint32_t> calls{0};
  const PhiloxBlock words =
      philox4x32({calls.fetch_add(1), 0, static_cast<uint32_t>(now_ns()), 0},
                 {static_cast<uint32_t>(start), static_cast<uint32_t>(start >> 32)});
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", words[0], words[1], words[2], words[3]);
}

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      service_rate_(std::max(options_.max_running, 1)),
      limiter_(options_.calls_per_minute, options_.keys.size()),
      start_time_s_(static_cast<double>(wall_clock_ns()) * 1e-9),
      created_(static_cast<int64_t>(start_time_s_)) {
  register_metrics();
  for (const Route& route : kRoutes)
    (void)registry_.counter(kAnswers, kAnswersHelp,
                            {{"route", route.path}, {"method", route.method}, {"code", "500"}});
}

Server::~Server() { http_.reset(); }

Result<std::unique_ptr<Server>> Server::open(ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  SWITCHYARD_ASSIGN(
      server->http_,
      HttpServer::open(
          server->options_.http,
          [self = server.get()](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
            self->handle(std::move(request), std::move(exchange));
          },
          never_waits,
          [self = server.get()](int status, std::string_view code, std::string_view message,
                                const Headers& headers) {
            return self->http_refusal({status, std::string(code), std::string(message), ""},
                                      headers);
          }));
  server->http_->start();  // its threads may now look at http_
  return server;
}

void Server::serve(Engine& engine) {
  engine_ = &engine;
  State loading = State::loading;
  state_.compare_exchange_strong(loading, State::ready);
}

void Server::drain() {
  for (State now = state_; now != State::dead;)  // which is for good
    if (state_.compare_exchange_weak(now, State::draining)) return;
}

void Server::fail_engine(const std::string& why) {
  const ApiError error{503, "engine_dead", why, ""};
  {
    const std::lock_guard lock(generations_mutex_);
    if (!stopped_) stopped_ = error;
    state_ = State::dead;
  }
  abort_all(error);
}

void Server::abort_all(const ApiError& error) {
  std::vector<std::shared_ptr<Generation>> running;
  {
    const std::lock_guard lock(generations_mutex_);
    for (const auto& weak : generations_)
      if (auto generation = weak.lock()) running.push_back(std::move(generation));
  }
  for (const auto& generation : running) generation->abort(error);
}

bool Server::wait_drained(double seconds) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (in_flight() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return in_flight() == 0;
}

void Server::stop() {
  drain();
  {
    const std::lock_guard lock(generations_mutex_);
    if (!stopped_) stopped_ = draining();
  }
  abort_all(draining());
  Engine* const engine = engine_;
  if (engine != nullptr && state_ != State::dead) (void)engine->wait_idle_for(kIdleSeconds);
  http_->stop(kFlushSeconds);
}

void Server::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  Arrival arrival{std::move(request), {}, {}};
  arrival.exchange = std::make_shared<ObservedExchange>(
      std::move(exchange), arrival.record, [this](RequestRecord& record) { on_end(record); });
  const std::string_view given = arrival.request.header("x-request-id");
  const bool usable = !given.empty() && given.size() <= kMaxRequestId && is_printable(given);
  arrival.id = usable ? std::string(given) : "req-" + new_id();
  arrival.record->id = arrival.id;
  arrival.record->received_ns = arrival.request.received_ns;
  if (options_.cors.is_preflight(arrival.request))
    return answer(arrival, Cors::preflight(arrival.request));
  const Route* const route = find_route(arrival);
  if (route == nullptr) return;
  if (std::string_view(route->method) == "POST" && !options_.cors.may_post(arrival.request))
    return answer(arrival,
                  ApiError{403, "origin_not_allowed",
                           "pages of this origin may not ask: name it with --cors-origin", ""});
  if (const auto error = check_caller(arrival, *route)) return answer(arrival, *error);
  if (route->needs == Route::Needs::engine && !check_engine(arrival)) return;
  if (std::string_view(route->method) == "POST" && !is_json_body(arrival.request))
    return answer(arrival, ApiError{415, "unsupported_media_type",
                                    "expected Content-Type: application/json", ""});
  (this->*route->handle)(arrival);
}

/// Answers itself when there is none.
const Server::Route* Server::find_route(Arrival& arrival) const {
  const HttpRequest& request = arrival.request;
  const char* allowed = nullptr;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, request.path)) continue;
    arrival.record->route = route.path;
    const std::string_view method(route.method);
    if (request.method == method || (request.method == "HEAD" && method == "GET")) return &route;
    allowed = route.method;
  }
  auto* const self = const_cast<Server*>(this);
  if (allowed == nullptr) {
    self->answer(arrival, ApiError{404, "not_found", "no such path on this server", ""});
  } else {
    HttpReply reply = error_reply(
        {405, "method_not_allowed", fmt::format("this path is asked with {}", allowed), ""});
    reply.headers.emplace_back("Allow", std::string_view(allowed) == "GET" ? "GET, HEAD" : allowed);
    self->answer(arrival, std::move(reply));
  }
  return nullptr;
}

void Server::answer(Arrival& arrival, const ApiError& error) {
  count_refusal(error.code);
  arrival.record->call.error = error.code;
  answer(arrival, error_reply(error));
}

/// Whose request did not become one: its answer carries what all do.
HttpReply Server::http_refusal(const ApiError& error, const Headers& headers) {
  Arrival arrival;
  arrival.request.headers = headers;
  arrival.id = "req-" + new_id();
  arrival.request.received_ns = now_ns();
  count_refusal(error.code);
  HttpReply reply = error_reply(error);
  add_headers(arrival, reply);
  RequestRecord& record = *arrival.record;
  record.id = arrival.id;
  record.status = reply.status;
  record.call.error = error.code;
  record.total_s = record.response_start_s;
  record.complete = true;
  on_end(record);
  return reply;
}

bool Server::never_waits(std::string_view path) {
  return std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) {
    return route.needs == Route::Needs::nothing && matches(route.path, path);
  });
}

void Server::answer(Arrival& arrival, HttpReply reply) {
  add_headers(arrival, reply);
  arrival.exchange->reply(std::move(reply));
}

void Server::add_headers(const Arrival& arrival, HttpReply& reply) {
  const double seconds = static_cast<double>(now_ns() - arrival.request.received_ns) * 1e-9;
  if (reply.status == 429 || reply.status == 503) {
    const double wait_s = arrival.wait_s > 0 ? arrival.wait_s : service_rate_.wait_s();
    reply.headers.emplace_back("Retry-After",
                               fmt::format("{:.0f}", std::clamp(std::ceil(wait_s), 1.0, 60.0)));
  }
  options_.cors.allow(arrival.request, reply);
  reply.headers.emplace_back("x-request-id", arrival.id);
  reply.headers.emplace_back("openai-processing-ms", fmt::format("{:.0f}", seconds * 1e3));
  const char* const method = arrival.request.method == "GET"    ? "GET"
                             : arrival.request.method == "POST" ? "POST"
                                                                : "other";
  const char* const route = arrival.record->route;
  registry_
      .counter(kAnswers, kAnswersHelp,
               {{"route", route}, {"method", method}, {"code", fmt::format("{}", reply.status)}})
      .add();
  registry_
      .histogram("switchyard_http_response_start_seconds",
                 "From the last byte of a request to the head of its answer", latency_bounds(),
                 {{"route", route}})
      .observe(seconds);
  arrival.record->method = method;
  arrival.record->response_start_s = seconds;
  log(LogLevel::debug, "{} {} {} {:.1f} ms {}", method, route, reply.status, seconds * 1e3,
      arrival.id);
}

/// Who asks, and whether they may now.
std::optional<ApiError> Server::check_caller(Arrival& arrival, const Route& route) {
  if (route.needs == Route::Needs::nothing) return std::nullopt;
  size_t key = 0;
  const bool open = options_.open_metrics && std::string_view(route.path) == "/metrics";
  if (!options_.keys.empty() && !open) {
    const auto found = options_.keys.find(arrival.request.header("authorization"));
    if (!found)
      return ApiError{401, "invalid_api_key",
                      "expected Authorization: Bearer with a key of this server", ""};
    key = *found;
  }
  if (std::string_view(route.method) != "POST") return std::nullopt;
  arrival.wait_s = limiter_.take(key, now_ns());
  if (arrival.wait_s == 0) return std::nullopt;
  return ApiError{429, "rate_limited",
                  fmt::format("more than {:g} calls a minute with this key: try again later",
                              options_.calls_per_minute),
                  ""};
}

std::optional<ApiError> Server::check_alive() const {
  if (state_ != State::dead) return std::nullopt;
  const std::lock_guard lock(generations_mutex_);
  return stopped_;
}

bool Server::check_engine(Arrival& arrival) {
  const State state = state_;
  if (state == State::ready) return true;
  if (const auto dead = check_alive())
    answer(arrival, *dead);
  else
    answer(arrival, state == State::loading
                        ? ApiError{503, "model_loading", "the model is still being loaded", ""}
                        : draining());
  return false;
}

/// A place in the engine for every choice, or null when it is full. Taken before any work is done for the call.
std::shared_ptr<void> Server::take_place(int64_t choices) {
  if (choices_.fetch_add(choices) + choices > options_.max_choices) {
    choices_ -= choices;
    return nullptr;
  }
  ++calls_;
  service_rate_.change(choices, now_ns());
  return std::shared_ptr<void>(&choices_, [this, choices](void*) {
    service_rate_.change(-choices, now_ns());
    choices_ -= choices;
    --calls_;
  });
}

bool Server::remember(const std::shared_ptr<Generation>& generation) {
  const std::lock_guard lock(generations_mutex_);
  if (stopped_) return false;  // check_alive() or draining() tell why
  std::erase_if(generations_, [](const auto& known) { return known.expired(); });
  generations_.push_back(generation);
  return true;
}

}  // namespace switchyard::serve
