// SPDX-License-Identifier: Apache-2.0
// Servers for tests: before the demonstration model, opened once, and before an engine that does what a test says.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "switchyard/engine.h"

#include "serve/server.h"

namespace switchyard {

/// models/demo in f32, two threads.
Engine& demo_engine();
/// Where its routings go while they are recorded.
serve::RoutingRecord& demo_record();
/// The greedy answer of the engine itself, without a server.
std::string greedy_text(Engine& engine, Request request, int max_tokens);

struct RunningServer {
  explicit RunningServer(Engine* engine, serve::ServerOptions options = {});
  ~RunningServer();
  uint16_t port() const { return server->port(); }

  std::unique_ptr<serve::Server> server;
};

/// Tokens are bytes; nothing is generated but what a test emits.
class ScriptedEngine final : public Engine {
 public:
  ScriptedEngine();
  Result<RequestId> submit(Request request, std::function<void(const Event&)> sink) override;
  void cancel(RequestId id) override;
  void wait_idle() override {}
  bool wait_idle_for(double) override { return true; }
  void drain() override {}
  EngineHealth health() const override {
    const std::lock_guard lock(mutex_);
    return health_;
  }
  Result<std::vector<int32_t>> tokenize(const Request& request) const override;
  Result<std::string> render(const Request& request) const override;
  Result<std::string> detokenize(std::span<const int32_t> tokens) const override;
  std::string token_bytes(int32_t token) const override {
    return std::string(1, static_cast<char>(token));
  }
  Result<ToolFormat> tool_format() const override { return format; }
  bool template_reads(const std::string& variable) const override {
    return variable == "reasoning_effort" && reads_effort;
  }
  const ModelSummary& summary() const override { return summary_; }
  SamplingParams default_sampling() const override {
    if (when_defaults_are_asked) when_defaults_are_asked();
    return {};
  }
  EngineStats stats() const override { return {}; }
  void reset_stats() override {}
  void set_profile(bool) override {}
  std::string chrome_trace() const override { return ""; }
  std::string metrics_text() const override { return ""; }

  /// Waits for the request number `count` (from 1). Ids are in order of submission.
  bool wait_submitted(size_t count);
  bool wait_cancelled(RequestId id);
  Request request(RequestId id);
  size_t submitted();
  size_t cancelled();
  void emit(RequestId id, const std::string& text, FinishReason finish = FinishReason::none);
  void emit(const Event& event) { send(event); }
  void fail_step(RequestId id, const std::string& why);

  void set_health(const EngineHealth& health) {
    const std::lock_guard lock(mutex_);
    health_ = health;
  }

  Result<ToolFormat> format = ToolFormat{};
  bool reads_effort = false;
  std::function<void()> when_tokenizing;
  std::function<void()> when_defaults_are_asked;  ///< by a call that is let in and not yet parsed

 private:
  void send(const Event& event);

  ModelSummary summary_;
  EngineHealth health_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::function<void(const Event&)>> sinks_;
  std::map<RequestId, Request> requests_;
  std::set<RequestId> cancelled_;
};

}  // namespace switchyard
