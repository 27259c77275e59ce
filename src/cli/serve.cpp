// SPDX-License-Identifier: Apache-2.0
// switchyard serve: OpenAI's HTTP interface before one model, until a signal; then what runs is finished. Or until the
// engine dies: then everybody is told, and the program fails.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/line_writer.h"
#include "cli/log_sink.h"
#include "cli/model_hash.h"
#include "cli/model_options.h"
#include "cli/notify.h"
#include "cli/open_files.h"
#include "serve/server.h"
#include "serve/watchdog.h"

namespace switchyard::cli {
namespace {

constexpr const char* kKeyVariable = "SWITCHYARD_API_KEY";
constexpr size_t kOtherFiles = 64;            // of the model, of the log, to listen
constexpr int64_t kConnectionsPerChoice = 4;  // clients that keep connections which rest
constexpr double kDeathLookSeconds = 0.1;  // how often a drain looks whether the engine still lives
constexpr double kFarewellSeconds = 10;    // to tell clients that the engine is dead

class Serve final : public Command {
 public:
  Serve(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  void declare_http(CLI::App& app);
  void declare_limits(CLI::App& app);
  void declare_observation(CLI::App& app);
  Result<serve::ServerOptions> server_options();
  void observe(serve::ServerOptions& options);
  std::string served_name() const;
  void announce(const serve::Server& server);
  void wait_for_end();
  void drain(serve::Server& server);
  void on_death(const std::string& why);
  bool is_dead();
  [[noreturn]] void die(serve::Server& server);
  ExitCode tell(const Error& error);
  void note(const std::string& text);

  serve::RoutingRecord routing_record_;  // before the engine that writes to it
  LineWriter lines_;
  std::string detail_ = "layer", compat_ = "none", log_format_ = "none";
  ModelOptions model_;
  serve::ServerOptions server_;
  std::vector<std::string> keys_;
  std::string key_file_;
  bool strict_ = false;
  std::vector<std::string> origins_;
  serve::WatchdogOptions watchdog_;
  int64_t max_queued_requests_ = 256;
  double shutdown_timeout_s_ = 30;

  std::mutex mutex_;
  std::condition_variable news_;
  bool signalled_ = false;
  std::string death_;  // why the engine is dead
};

Serve::Serve(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("serve", "Answers OpenAI clients over HTTP");
  model_.declare(*app);
  model_.declare_random(*app);
  declare_http(*app);
  declare_limits(*app);
  app->add_flag("--prefix-cache,!--no-prefix-cache", model_.engine.prefix_cache,
                "Prompts that begin alike share keys and values (default: on)");
  declare_observation(*app);
}

/// "off", "layer", "expert", or "top-" with a number.
std::string check_detail(const std::string& text) {
  if (text == "off" || text == "layer" || text == "expert") return {};
  int top = 0;
  const bool number = text.starts_with("top-") && CLI::detail::lexical_cast(text.substr(4), top);
  return number && top >= 1 && top <= 65535 ? ""
                                            : "expected off, layer, expert, or top-N such as top-8";
}

void Serve::declare_observation(CLI::App& app) {
  model_.engine.profile = true;
  app.add_flag("--profile,!--no-profile", model_.engine.profile,
               "Sum the time of phases, for /metrics and /v1/moe/stats (default: on)");
  app.add_option(
         "--metrics-expert-detail", detail_,
         "How far /metrics goes into routing: off (sums over layers), layer, expert (layers x "
         "experts series), or top-N, the N busiest experts of each layer")
      ->check(CLI::Validator(check_detail, ""))
      ->capture_default_str();
  app.add_option("--metrics-compat", compat_,
                 "vllm: /metrics also has the names that routers and autoscalers read from vLLM")
      ->check(CLI::IsMember({"none", "vllm"}))
      ->capture_default_str();
  app.add_option(
         "--log-format", log_format_,
         "One line on standard error for each request, without prompts and keys: none, text, "
         "or json, which makes every other message a line of JSON too")
      ->check(CLI::IsMember({"none", "text", "json"}))
      ->capture_default_str();
}

void Serve::declare_http(CLI::App& app) {
  app.add_option("--host", server_.http.host, "Address to listen on")->capture_default_str();
  server_.http.port = 8000;
  app.add_option("--port", server_.http.port, "Port to listen on (0: one that is free)")
      ->capture_default_str();
  app.add_option("--served-model-name", server_.served_names,
                 "Names of the model for clients (default: the folder's name)")
      ->allow_extra_args(false);
  app.add_option("--api-key", keys_,
                 "A key that clients must send; may be given several times. Others on this machine "
                 "can read command lines: better by the variable or a file")
      ->allow_extra_args(false)
      ->envname(kKeyVariable);
  app.add_option("--api-key-file", key_file_, "Keys, one a line");
  app.add_flag("--open-metrics", server_.open_metrics, "/metrics needs no key");
  app.add_option(
         "--cors-origin", origins_,
         "An origin whose pages may read answers in a browser, as https://app.example, or *; "
         "may be given several times (default: none)")
      ->allow_extra_args(false);
  app.add_flag("--strict-api", strict_, "Refuse unknown fields instead of ignoring them");
}

void Serve::declare_limits(CLI::App& app) {
  app.add_option("--max-queued-requests", max_queued_requests_,
                 "Choices that may wait while --max-sequences run; more are answered 429")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-queued-tokens", model_.engine.max_queued_tokens,
                 "Prompt tokens that may wait (0: no limit); more are answered 429")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--request-timeout", server_.request_timeout_s,
                 "Seconds that a request may take (0: no limit)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--rate-limit", server_.calls_per_minute,
         "Calls a minute of each key, or of all clients without keys (0: no limit); more are "
         "answered 429")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--stall-timeout", watchdog_.stall_s,
                 "Seconds without the end of a step, while requests are in, after which the engine "
                 "counts as dead and the program ends (0: no limit)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--shutdown-timeout", shutdown_timeout_s_,
                 "Seconds that running requests have after a signal")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

ExitCode Serve::run() {
  if (log_format_ == "json") {
    model_.json_lines = [this](std::string line) { lines_.write(std::move(line)); };
    lines_.set_dropped_text([](uint64_t count) {
      return serve::message_line(
          "warning", fmt::format("{} lines of the log were dropped: nobody read them", count));
    });
  }
  model_.install_log();
  auto options = server_options();
  if (!options.ok()) return tell(options.error());
  auto opened = serve::Server::open(*std::move(options));
  if (!opened.ok()) {
    (void)tell(opened.error());
    return kCannotBind;
  }
  const std::unique_ptr<serve::Server> server = *std::move(opened);
  auto engine = open_engine(model_);
  if (!engine.ok()) return tell(engine.error());
  if (!model_.json_lines)  // from now on nobody waits for a reader of standard error
    install_line_log_sink(lowest_level(model_.quiet, model_.verbose),
                          [this](std::string line) { lines_.write(std::move(line)); });
  Interrupts::on_stop([this] {
    const std::lock_guard lock(mutex_);
    signalled_ = true;
    news_.notify_all();
  });
  server->serve(**engine);
  {
    const serve::Watchdog watchdog(**engine, watchdog_,
                                   [this](const std::string& why) { on_death(why); });
    announce(*server);
    notify_service("READY=1");
    wait_for_end();
    if (!is_dead()) drain(*server);
  }
  if (is_dead()) die(*server);
  server->stop();
  // A step that still runs would be waited for without an end; its calls have been told.
  if (!(*engine)->wait_idle_for(0)) {
    note("a step did not end in time, and is left behind");
    lines_.flush(LineWriter::kPatienceSeconds);
    std::_Exit(kOk);
  }
  engine->reset();  // before the server: calls that end now still have their place in it
  return kOk;
}

void Serve::observe(serve::ServerOptions& options) {
  EngineOptions& engine = model_.engine;
  engine.metric_detail = detail_ == "off"      ? MetricDetail::off
                         : detail_ == "layer"  ? MetricDetail::layer
                         : detail_ == "expert" ? MetricDetail::expert
                                               : MetricDetail::top;
  if (engine.metric_detail == MetricDetail::top)
    engine.metric_top_experts = std::atoi(detail_.c_str() + 4);
  engine.on_routed_step = [this](const RoutedStep& step) { routing_record_.push(step); };
  engine.wants_routed_step = [this] { return routing_record_.wanted(); };
  options.routing_record = &routing_record_;
  options.model_hash =
      model_hash(engine.random_model.empty()
                     ? engine.model
                     : fmt::format("random {} {}", engine.random_model, engine.random_spread));
  options.vllm_metrics = compat_ == "vllm";
  options.log_format = log_format_ == "json"   ? serve::LogFormat::json
                       : log_format_ == "text" ? serve::LogFormat::text
                                               : serve::LogFormat::none;
  options.request_log = [this](std::string line) { lines_.write(std::move(line)); };
}

Result<serve::ServerOptions> Serve::server_options() {
  serve::ServerOptions options = server_;
  if (options.served_names.empty()) options.served_names.push_back(served_name());
  // A secret that was not filled in must not open the server.
  const char* const given = std::getenv(kKeyVariable);
  if (given != nullptr && *given == '\0')
    return fail(Code::bad_request, "{} is set but empty: give it a key, or unset it", kKeyVariable);
  for (const std::string& key : keys_) SWITCHYARD_TRY(options.keys.add(key));
  if (!key_file_.empty()) SWITCHYARD_TRY(options.keys.add_file(key_file_));
  for (const std::string& origin : origins_) SWITCHYARD_TRY(options.cors.add(origin));
  options.unknown_fields = strict_ ? serve::UnknownFields::refused : serve::UnknownFields::ignored;
  observe(options);
  options.max_running = model_.engine.max_sequences;
  options.max_choices = options.max_running + max_queued_requests_;
  options.http.connections += static_cast<size_t>(kConnectionsPerChoice * options.max_choices);
  const size_t files = std::max(raise_open_files(), kOtherFiles + 1);
  options.http.connections = std::min(options.http.connections, files - kOtherFiles);
  return options;
}

std::string Serve::served_name() const {
  if (!model_.engine.random_model.empty()) return "random-" + model_.engine.random_model;
  const std::filesystem::path path =
      std::filesystem::path(model_.engine.model + "/").lexically_normal().parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." || name == ".." ? "model" : name;
}

void Serve::announce(const serve::Server& server) {
  const std::string& host = server_.http.host;
  const bool v6 = host.find(':') != std::string::npos;
  note(fmt::format("serving on http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "",
                   server.port()));
  const bool local = host == "127.0.0.1" || host == "::1";
  if (!local && keys_.empty() && key_file_.empty())
    note(
        "everybody who reaches this address may use the model: set SWITCHYARD_API_KEY or "
        "--api-key-file");
}

void Serve::wait_for_end() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return signalled_ || !death_.empty(); });
}

/// Watchdog's thread.
void Serve::on_death(const std::string& why) {
  const std::lock_guard lock(mutex_);
  death_ = why;
  news_.notify_all();
}

bool Serve::is_dead() {
  const std::lock_guard lock(mutex_);
  return !death_.empty();
}

void Serve::drain(serve::Server& server) {
  server.drain();
  notify_service("STOPPING=1");
  if (server.in_flight() > 0)
    note(fmt::format("finishing {} requests, for at most {} s; a second signal ends at once",
                     server.in_flight(), shutdown_timeout_s_));
  const int64_t end_ns = now_ns() + static_cast<int64_t>(shutdown_timeout_s_ * 1e9);
  while (!server.wait_drained(kDeathLookSeconds) && now_ns() < end_ns && !is_dead()) {
  }
  if (server.in_flight() > 0 && !is_dead())
    note(fmt::format("{} requests were not done in time", server.in_flight()));
}

/// The engine's thread may hang for ever, so nothing is taken apart: clients are told, and the process ends.
void Serve::die(serve::Server& server) {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::duration<double>(kFarewellSeconds));
    std::_Exit(kFailure);
  }).detach();
  (void)tell(fail(Code::internal, "the engine is dead: {}", death_));
  notify_service("STOPPING=1\nSTATUS=the engine is dead: " + death_);
  server.fail_engine(death_);
  server.stop();
  lines_.flush(LineWriter::kPatienceSeconds);
  std::_Exit(kFailure);
}

/// As report(), in the format of the log.
ExitCode Serve::tell(const Error& error) {
  lines_.write(model_.json_lines ? serve::message_line("error", error.message)
                                 : "switchyard: " + error.message);
  return exit_code(error.code);
}

void Serve::note(const std::string& text) {
  if (model_.quiet) return;
  lines_.write(model_.json_lines ? serve::message_line("info", text) : "switchyard: " + text);
}

}  // namespace

std::unique_ptr<Command> make_serve(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Serve>(parent, app);
}

}  // namespace switchyard::cli
