// SPDX-License-Identifier: Apache-2.0
#include "server/fixture.h"

#include <chrono>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

serve::RoutingRecord& demo_record() {
  static serve::RoutingRecord record;
  return record;
}

Engine& demo_engine() {
  static const std::unique_ptr<Engine> engine = [] {
    EngineOptions options;
    options.model = std::string(SWITCHYARD_SOURCE_DIR) + "/models/demo";
    options.precision = Precision::f32;
    options.threads = 2;
    options.on_routed_step = [record = &demo_record()](const RoutedStep& step) {
      record->push(step);
    };
    options.wants_routed_step = [record = &demo_record()] { return record->wanted(); };
    auto opened = Engine::open(options);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
    return opened.ok() ? *std::move(opened) : nullptr;
  }();
  return *engine;
}

std::string greedy_text(Engine& engine, Request request, int max_tokens) {
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.reuse_prefix = false;
  std::string text;
  const auto id =
      engine.submit(std::move(request), [&](const Event& event) { text += event.text; });
  EXPECT_TRUE(id.ok());
  engine.wait_idle();
  return text;
}

RunningServer::RunningServer(Engine* engine, serve::ServerOptions options) {
  if (options.served_names.empty()) options.served_names = {"demo"};
  auto opened = serve::Server::open(std::move(options));
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  server = *std::move(opened);
  if (engine != nullptr) server->serve(*engine);
}

RunningServer::~RunningServer() {
  server->stop();
  EXPECT_TRUE(server->wait_drained(10));  // before the server goes, its calls must have gone
}

ScriptedEngine::ScriptedEngine() {
  summary_.max_model_len = 1000;
  summary_.vocab = 256;
}

Result<RequestId> ScriptedEngine::submit(Request request, std::function<void(const Event&)> sink) {
  const std::lock_guard lock(mutex_);
  const RequestId id = requests_.size() + 1;
  sinks_[id] = std::move(sink);
  requests_[id] = std::move(request);
  changed_.notify_all();
  return id;
}

void ScriptedEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(id);
  sinks_.erase(id);
  changed_.notify_all();
}

Result<std::vector<int32_t>> ScriptedEngine::tokenize(const Request& request) const {
  if (when_tokenizing) when_tokenizing();
  if (!request.prompt_tokens.empty()) return request.prompt_tokens;
  std::string text = request.prompt;
  for (const Message& message : request.messages) text += message.content;
  return std::vector<int32_t>(text.begin(), text.end());
}

Result<std::string> ScriptedEngine::render(const Request& request) const {
  std::string text;
  for (const Message& message : request.messages) text += message.content;
  return text;
}

Result<std::string> ScriptedEngine::detokenize(std::span<const int32_t> tokens) const {
  return std::string(tokens.begin(), tokens.end());
}

bool ScriptedEngine::wait_submitted(size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return requests_.size() >= count; });
}

bool ScriptedEngine::wait_cancelled(RequestId id) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return cancelled_.contains(id); });
}

Request ScriptedEngine::request(RequestId id) {
  const std::lock_guard lock(mutex_);
  return requests_.at(id);
}

size_t ScriptedEngine::submitted() {
  const std::lock_guard lock(mutex_);
  return requests_.size();
}

size_t ScriptedEngine::cancelled() {
  const std::lock_guard lock(mutex_);
  return cancelled_.size();
}

void ScriptedEngine::send(const Event& event) {
  std::function<void(const Event&)> sink;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sinks_.find(event.id);
    if (found == sinks_.end()) return;
    sink = found->second;
    if (event.finish != FinishReason::none) sinks_.erase(found);
  }
  sink(event);
}

void ScriptedEngine::emit(RequestId id, const std::string& text, FinishReason finish) {
  Event event;
  event.id = id;
  event.text = text;
  event.tokens = {1};
  event.finish = finish;
  send(event);
}

void ScriptedEngine::fail_step(RequestId id, const std::string& why) {
  Event event;
  event.id = id;
  event.finish = FinishReason::error;
  event.error = Error(Code::internal, why);
  send(event);
}

}  // namespace switchyard
