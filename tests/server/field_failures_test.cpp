// SPDX-License-Identifier: Apache-2.0
// Failures that other servers had in the field, of the class Server, each as a test with the name of its row. Server-3, a
// signal that drops requests, is Process.ServesWhatRunSaysAndDrainsOnTerm.
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kPath = "/v1/completions";

bool wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 2000 && !done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return done();
}

std::string long_call(bool stream) {
  return post_text(
      kPath,
      fmt::format(R"({{"prompt":"a","max_tokens":1900,"ignore_eos":true,"stream":{}}})", stream));
}

// The address sanitizer keeps what was freed in a quarantine of 256 MiB.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kMostGrowthKib = 300 << 10;
#else
constexpr int64_t kMostGrowthKib = 8 << 10;
#endif

int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoll(line.c_str() + 6, nullptr, 10);
  return 0;
}

/// vllm#24584, sglang#35255, pegainfer#215: decoding went on after the client had left. Here in a stream, in a whole answer
/// and in the queue; that the blocks are free within two steps is in tests/engine/acceptance_test.cpp.
TEST(FieldFailures, Server1) {
  Engine& engine = demo_engine();
  RunningServer running(&engine);
  const uint64_t before = engine.stats().output_tokens;
  constexpr int kCalls = 20;  // more than the engine runs at once, so that some wait
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kCalls; ++i) {
    clients.push_back(std::make_unique<Client>(running.port()));
    clients.back()->send(long_call(i % 2 == 0));
    if (i > 0) continue;
    // Before others come: else it may be one that waits.
    ASSERT_TRUE(clients.front()->wait_for("data: "));
  }
  ASSERT_TRUE(wait_until([&] { return engine.health().requests == kCalls; }));
  clients.clear();
  EXPECT_TRUE(wait_until([&] { return engine.health().requests == 0; }));
  EXPECT_LT(engine.stats().output_tokens - before, uint64_t{kCalls * 1900 / 2});
  EXPECT_TRUE(running.server->wait_drained(10));
}

/// vllm#13395, #18826, #49445, #58192: an unbounded queue, and work done for those who are then rejected. Here a burst of
/// ten times the room: no prompt of theirs is looked at, and memory stays.
TEST(FieldFailures, Server2) {
  constexpr int kRoom = 4, kBurst = 10 * kRoom;
  ScriptedEngine engine;
  std::atomic<int> tokenized{0};
  engine.when_tokenizing = [&] { ++tokenized; };
  serve::ServerOptions options;
  options.max_choices = kRoom;
  RunningServer running(&engine, options);
  std::vector<std::unique_ptr<Client>> inside;
  for (int i = 0; i < kRoom; ++i) {
    inside.push_back(std::make_unique<Client>(running.port()));
    inside.back()->send(post_text(kPath, R"({"prompt":"a"})"));
  }
  ASSERT_TRUE(engine.wait_submitted(kRoom));
  const std::string large = fmt::format(R"({{"prompt":"{}"}})", std::string(100'000, 'a'));
  const auto burst = [&] {
    for (int i = 0; i < kBurst; ++i)
      EXPECT_EQ(post(running.port(), kPath, large).error_code(), "queue_full");
  };
  burst();
  const int64_t resident = resident_kib();
  for (int i = 0; i < 5; ++i) burst();
  EXPECT_LT(resident_kib() - resident, kMostGrowthKib);
  EXPECT_EQ(tokenized, kRoom);
  EXPECT_EQ(engine.submitted(), size_t{kRoom});
  for (RequestId id = 1; id <= kRoom; ++id) engine.emit(id, "x", FinishReason::stop);
  for (const auto& client : inside) EXPECT_EQ(client->read_response().status, 200);
}

}  // namespace
}  // namespace switchyard
