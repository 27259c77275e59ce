// SPDX-License-Identifier: Apache-2.0
// An engine that dies or hangs: everybody is told, and nobody waits for ever.
#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "serve/watchdog.h"
#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kPath = "/v1/completions";
constexpr auto kPatience = std::chrono::seconds(10);

/// What a watchdog says within ten seconds; empty: nothing.
struct Verdict {
  std::promise<std::string> promise;
  std::future<std::string> future = promise.get_future();
  auto hook() {
    return [this](const std::string& why) { promise.set_value(why); };
  }
  std::string wait(std::chrono::milliseconds patience = kPatience) {
    return future.wait_for(patience) == std::future_status::ready ? future.get() : "";
  }
};

TEST(EngineDeath, EveryCallEndsAndTheProbesSaySo) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client stream(running.port()), whole(running.port());
  stream.send(post_text(kPath, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  whole.send(post_text(kPath, R"({"prompt":"a"})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(1, "first");
  ASSERT_TRUE(stream.wait_for("first"));
  running.server->fail_engine("it died of a test");
  const Response streamed = stream.read_response();
  EXPECT_NE(streamed.body.find(R"("code":"engine_dead")"), std::string::npos) << streamed.body;
  EXPECT_NE(streamed.body.find("it died of a test"), std::string::npos);
  EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
  const Response refused = whole.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error_code(), "engine_dead");
  for (const char* const path : {"/live", "/health", "/v1/models"}) {
    EXPECT_EQ(get(running.port(), path).status, 503) << path;
    EXPECT_EQ(get(running.port(), path).error_code(), "engine_dead") << path;
  }
  EXPECT_EQ(post(running.port(), kPath, R"({"prompt":"a"})").error_code(), "engine_dead");
  running.server->drain();
  EXPECT_EQ(get(running.port(), "/health").error_code(), "engine_dead") << "death is for good";
  EXPECT_EQ(engine.submitted(), 2u);
  EXPECT_TRUE(running.server->wait_drained(10));
}

TEST(EngineDeath, ALoopThatHasEndedIsSeen) {
  ScriptedEngine engine;
  Verdict verdict;
  const serve::Watchdog watchdog(engine, {.stall_s = 0, .look_s = 0.005}, verdict.hook());
  engine.set_health({.death = "std::bad_alloc", .requests = 0, .steps = 3});
  EXPECT_EQ(verdict.wait(), "std::bad_alloc");
}

TEST(EngineDeath, RequestsWithoutStepsAreAStall) {
  ScriptedEngine engine;
  engine.set_health({.death = "", .requests = 2, .steps = 3});
  Verdict verdict;
  const serve::Watchdog watchdog(engine, {.stall_s = 0.1, .look_s = 0.005}, verdict.hook());
  const std::string why = verdict.wait();
  EXPECT_NE(why.find("2 requests"), std::string::npos) << why;
  EXPECT_NE(why.find("--stall-timeout"), std::string::npos) << why;
}

TEST(EngineDeath, StepsThatEndAndAnEngineThatRestsAreNoStall) {
  serve::StallClock clock(0.25);
  for (uint64_t step = 1; step < 100; ++step)
    EXPECT_EQ(clock.look({.death = "", .requests = 3, .steps = step}, 0.25), 0);
  EXPECT_GT(clock.look({.death = "", .requests = 3, .steps = 99}, 0.25), 0);
  EXPECT_EQ(clock.look({.death = "", .requests = 0, .steps = 99}, 0.25), 0) << "it rests";
}

TEST(EngineDeath, TimeThatJumpsIsNoStallAndHidesNone) {
  serve::StallClock clock(0.25);
  const EngineHealth hangs{.death = "", .requests = 1, .steps = 0};
  EXPECT_EQ(clock.look(hangs, 0.25), 0.25);
  EXPECT_EQ(clock.look(hangs, 1e6), 0.75) << "the process was stopped: worth two looks";
  EXPECT_EQ(clock.look(hangs, -1e6), 0.75) << "the clock went back";
  EXPECT_EQ(clock.look(hangs, 0.25), 1.0);
}

TEST(EngineDeath, WithoutALimitALongStepIsNoDeath) {
  ScriptedEngine engine;
  engine.set_health({.death = "", .requests = 1, .steps = 1});
  Verdict verdict;
  const serve::Watchdog watchdog(engine, {.stall_s = 0, .look_s = 0.005}, verdict.hook());
  EXPECT_EQ(verdict.wait(std::chrono::milliseconds(200)), "");
}

TEST(EngineDeath, AnErrorOfADeadEngineIsNamedSo) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client stream(running.port());
  stream.send(post_text(kPath, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.set_health({.death = "the loop has ended", .requests = 1, .steps = 1});
  engine.fail_step(1, "what the loop says last");
  EXPECT_NE(stream.read_response().body.find(R"("code":"engine_dead")"), std::string::npos);
}

}  // namespace
}  // namespace switchyard
