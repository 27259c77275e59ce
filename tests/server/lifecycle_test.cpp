// SPDX-License-Identifier: Apache-2.0
// Loading, ready, draining: what is answered when, and that nothing in flight is lost.
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kPath = "/v1/completions";

TEST(Lifecycle, NotReadyWhileTheModelLoads) {
  ScriptedEngine engine;
  RunningServer running(nullptr);
  EXPECT_EQ(get(running.port(), "/live").status, 200);
  const Response health = get(running.port(), "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.error_code(), "model_loading");
  EXPECT_TRUE(health.headers.contains("retry-after"));
  EXPECT_EQ(post(running.port(), kPath, R"({"prompt":"a"})").error_code(), "model_loading");
  EXPECT_EQ(get(running.port(), "/metrics").status, 200);
  running.server->serve(engine);
  EXPECT_EQ(get(running.port(), "/health").status, 200);
}

TEST(Lifecycle, ADrainFinishesWhatRunsAndTakesNothingNew) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client stream(running.port()), whole(running.port());
  stream.send(post_text(kPath, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  whole.send(post_text(kPath, R"({"prompt":"a"})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(1, "first");
  running.server->drain();
  EXPECT_EQ(get(running.port(), "/live").status, 200);
  EXPECT_EQ(get(running.port(), "/health").error_code(), "draining");
  EXPECT_EQ(post(running.port(), kPath, R"({"prompt":"b"})").status, 503);
  EXPECT_FALSE(running.server->wait_drained(0.05));
  engine.emit(1, "last", FinishReason::stop);
  engine.emit(2, "all", FinishReason::stop);
  EXPECT_TRUE(running.server->wait_drained(10));
  running.server->stop();
  const Response streamed = stream.read_response();
  EXPECT_TRUE(streamed.complete);
  EXPECT_EQ(streamed_text(streamed.body), "firstlast");
  EXPECT_NE(streamed.body.find("[DONE]"), std::string::npos);
  EXPECT_NE(whole.read_response().body.find("\"all\""), std::string::npos);
}

TEST(Lifecycle, ACallThatCameJustBeforeTheDrainIsNotMissedByIt) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  engine.when_defaults_are_asked = [&] { running.server->drain(); };
  EXPECT_EQ(post(running.port(), kPath, R"({"prompt":"a"})").error_code(), "draining");
  EXPECT_EQ(engine.submitted(), 0u);
}

TEST(Lifecycle, WhatIsNotDoneInTimeEndsWithAnError) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client stream(running.port()), whole(running.port());
  stream.send(post_text(kPath, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  whole.send(post_text(kPath, R"({"prompt":"a"})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(1, "first");
  running.server->stop();
  const Response streamed = stream.read_response();
  EXPECT_NE(streamed.body.find("shutting down"), std::string::npos) << streamed.body;
  EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(whole.read_response().status, 503);
  EXPECT_TRUE(engine.wait_cancelled(1));
  EXPECT_TRUE(engine.wait_cancelled(2));
}

TEST(Lifecycle, AnAddressThatIsTakenIsAnError) {
  RunningServer running(nullptr);
  serve::ServerOptions options;
  options.http.port = running.port();
  const auto second = serve::Server::open(options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
  options.http.host = "no address";
  EXPECT_FALSE(serve::Server::open(options).ok());
}

}  // namespace
}  // namespace switchyard
