// SPDX-License-Identifier: Apache-2.0
// Before an engine that does what the test says: clients that leave, that do not read, too many of them, steps that fail.
#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kPath = "/v1/completions";
constexpr const char* kStream = R"({"prompt":"abc","stream":true})";
constexpr const char* kWhole = R"({"prompt":"abc"})";

TEST(Scripted, EventsArriveOneByOne) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(post_text(kPath, kStream));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "first");
  EXPECT_TRUE(client.wait_for("first"));
  EXPECT_EQ(client.received().find("second"), std::string::npos);
  engine.emit(1, "second", FinishReason::stop);
  const Response response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(streamed_text(response.body), "firstsecond");
}

TEST(Scripted, AClientThatLeavesMidStreamFreesItsSequence) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(post_text(kPath, kStream));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "first");
  ASSERT_TRUE(client.wait_for("first"));
  client.close();
  EXPECT_TRUE(engine.wait_cancelled(1));
  EXPECT_TRUE(running.server->wait_drained(10));
  EXPECT_NE(get(running.port(), "/metrics")
                .body.find(R"(switchyard_client_disconnects_total{stage="decode"} 1)"),
            std::string::npos);
}

TEST(Scripted, AClientThatLeavesBeforeAWholeAnswerFreesAllItsChoices) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(post_text(kPath, R"({"prompt":["ab","cd"],"n":2})"));
  ASSERT_TRUE(engine.wait_submitted(4));
  client.close();
  for (RequestId id = 1; id <= 4; ++id) EXPECT_TRUE(engine.wait_cancelled(id)) << id;
}

/// Whether one of the server's counts of clients that left is not 0.
bool any_client_left(uint16_t port) {
  const std::string text = get(port, "/metrics").body;
  constexpr std::string_view kName = "\nswitchyard_client_disconnects_total{";
  for (size_t at = 0; (at = text.find(kName, at)) != std::string::npos; ++at)
    if (text.compare(text.find("} ", at), 4, "} 0\n") != 0) return true;
  return false;
}

TEST(Scripted, NothingIsCancelledWhenARequestEndsWell) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(post_text(kPath, kWhole));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "x", FinishReason::stop);
  EXPECT_EQ(client.read_response().status, 200);
  client.close();
  EXPECT_FALSE(any_client_left(running.port()));
  EXPECT_EQ(engine.cancelled(), 0u);
}

TEST(Scripted, PromptsOfAClientThatHasLeftAreNotTokenized) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  std::atomic<int> tokenized{0};
  engine.when_tokenizing = [&] {
    if (++tokenized > 1) return;
    for (int i = 0; i < 1000 && !any_client_left(running.port()); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  client.send(post_text(kPath, R"({"prompt":["a","b","c"]})"));
  while (tokenized == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.close();
  EXPECT_TRUE(running.server->wait_drained(20));
  EXPECT_EQ(tokenized, 1);
  EXPECT_EQ(engine.submitted(), 0u);
}

TEST(Scripted, TokenIdsOutsideTheVocabularyAreNamed) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const Response refused = post(running.port(), kPath, R"({"prompt":[1,256]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error_param(), "prompt");
  EXPECT_NE(refused.body.find("prompt[1] is 256"), std::string::npos) << refused.body;
  EXPECT_EQ(post(running.port(), kPath, R"({"prompt":"a","stop_token_ids":[256]})").error_param(),
            "stop_token_ids");
}

TEST(Scripted, AFailedStepIsAnErrorAndNeverAStop) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client stream(running.port()), whole(running.port());
  stream.send(post_text(kPath, kStream));
  ASSERT_TRUE(engine.wait_submitted(1));
  whole.send(post_text(kPath, kWhole));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(1, "half");
  engine.fail_step(1, "the step broke");
  engine.fail_step(2, "the step broke");
  const Response streamed = stream.read_response();
  const auto events = events_of(streamed.body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NE(events.back().find(R"({"error":{"message":"the step broke)"), std::string::npos);
  EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(stream.is_closed());
  const Response answered = whole.read_response();
  EXPECT_EQ(answered.status, 500);
  EXPECT_EQ(answered.error_code(), "internal_error");
}

TEST(Scripted, MoreChoicesThanTheServerTakesAreRefusedForGood) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.max_choices = 3;
  RunningServer running(&engine, options);
  for (const char* body : {R"({"prompt":"a","n":4})", R"({"prompt":["a","b"],"n":2})"}) {
    const Response refused = post(running.port(), kPath, body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.error_code(), "invalid_value");
    EXPECT_EQ(refused.error_param(), "n");
  }
  EXPECT_EQ(engine.submitted(), 0u);
}

TEST(Scripted, AFullQueueTurnsAwayBeforeAnyWork) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.max_choices = 2;
  RunningServer running(&engine, options);
  Client first(running.port());
  first.send(post_text(kPath, R"({"prompt":"ab","n":2})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  const Response refused = post(running.port(), kPath, kWhole);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error_code(), "queue_full");
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_EQ(engine.submitted(), 2u);
  engine.emit(1, "x", FinishReason::stop);
  engine.emit(2, "y", FinishReason::stop);
  EXPECT_EQ(first.read_response().status, 200);
  ASSERT_TRUE(running.server->wait_drained(10));
  Client next(running.port());
  next.send(post_text(kPath, kWhole));
  ASSERT_TRUE(engine.wait_submitted(3));
  engine.emit(3, "z", FinishReason::stop);
  EXPECT_EQ(next.read_response().status, 200);
}

TEST(Scripted, AReaderThatDoesNotReadIsCutOffWithinItsBound) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.backlog_bytes = 100'000;
  RunningServer running(&engine, options);
  Client slow(running.port());
  slow.set_receive_buffer(4096);
  slow.send(post_text(kPath, kStream));
  ASSERT_TRUE(engine.wait_submitted(1));
  const std::string text(10'000, 'x');
  for (int i = 0; i < 2000 && running.server->in_flight() > 0; ++i) engine.emit(1, text);
  EXPECT_TRUE(engine.wait_cancelled(1));
}

TEST(Scripted, AWriteThatMakesNoProgressEndsAfterItsTime) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.backlog_bytes = size_t{100} << 20;
  options.http.write_stall_s = 0.2;
  RunningServer running(&engine, options);
  Client slow(running.port());
  slow.set_receive_buffer(4096);
  slow.send(post_text(kPath, kStream));
  ASSERT_TRUE(engine.wait_submitted(1));
  for (int i = 0; i < 100; ++i) engine.emit(1, std::string(100'000, 'x'));
  EXPECT_TRUE(engine.wait_cancelled(1));
}

TEST(Scripted, ASilentStreamIsKeptAliveByComments) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.ping_s = 0.05;
  RunningServer running(&engine, options);
  Client client(running.port());
  client.send(post_text(kPath, kStream));
  ASSERT_TRUE(engine.wait_submitted(1));
  EXPECT_TRUE(client.wait_for(": ping\n\n"));
  engine.emit(1, "late", FinishReason::stop);
  EXPECT_EQ(streamed_text(client.read_response().body), "late");
}

TEST(Scripted, WhatTheClientAsksReachesTheEngine) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.request_timeout_s = 12;
  RunningServer running(&engine, options);
  Client client(running.port());
  client.send(post_text(
      kPath,
      R"({"prompt":"abc","temperature":0.5,"top_p":0.25,"top_k":-1,"min_p":0.125,"seed":-1,"stop":"a",
          "stop_token_ids":[3],"ignore_eos":true,"min_tokens":2,"max_tokens":4,"presence_penalty":-1,
          "frequency_penalty":1,"repetition_penalty":1.5,"priority":-3,"cache_salt":"s",
          "cache_prompt":false})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  const Request request = engine.request(1);
  const SamplingParams& sampling = request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(*sampling.seed, ~uint64_t{0});
  EXPECT_EQ(sampling.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(sampling.stop_token_ids, std::vector<int32_t>{3});
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_EQ(sampling.max_tokens, 4);
  EXPECT_EQ(sampling.presence_penalty, -1);
  EXPECT_EQ(sampling.frequency_penalty, 1);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_FALSE(request.reuse_prefix);
  EXPECT_EQ(request.timeout_s, 12);
  engine.emit(1, "x", FinishReason::stop);
  EXPECT_EQ(client.read_response().status, 200);
}

}  // namespace
}  // namespace switchyard
