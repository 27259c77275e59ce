// SPDX-License-Identifier: Apache-2.0
// One line for each request, true to what was answered; nothing of prompts and keys, and no control character survives.
#include "serve/request_log.h"

#include <future>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

using serve::LogFormat;

struct Lines {
  serve::ServerOptions options(LogFormat format) {
    serve::ServerOptions options;
    options.log_format = format;
    options.request_log = [this](std::string line) {
      const std::lock_guard lock(mutex);
      lines.push_back(std::move(line));
    };
    return options;
  }
  /// Waits for it: a client that leaves is noticed a little later.
  std::string at(size_t index) {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (lines.size() > index) return lines[index];
      }
      ::usleep(5000);
    }
    ADD_FAILURE() << "no line " << index;
    return "{}";
  }

  std::mutex mutex;
  std::vector<std::string> lines;
};

Json parsed(const std::string& line) {
  auto json = parse_json(line, "line");
  EXPECT_TRUE(json.ok()) << line;
  return json.ok() ? *std::move(json) : Json();
}

TEST(RequestLog, SaysWhatTheAnswerSaid) {
  Lines lines;
  RunningServer running(&demo_engine(), lines.options(LogFormat::json));
  const Response response = post(
      running.port(), "/v1/completions",
      R"({"prompt":"confidential words","max_tokens":7,"ignore_eos":true,"moe_stats":true,"cache_prompt":false})",
      "x-request-id: mine\r\n");
  ASSERT_EQ(response.status, 200);
  const std::string line = lines.at(0);
  EXPECT_EQ(line.find("confidential"), std::string::npos) << line;
  const Json json = parsed(line), answer = response.json();
  EXPECT_EQ(json.find("kind")->as_string(), "request");
  EXPECT_EQ(json.find("id")->as_string(), "mine");
  EXPECT_EQ(json.find("route")->as_string(), "/v1/completions");
  EXPECT_EQ(json.find("method")->as_string(), "POST");
  EXPECT_EQ(json.find("status")->as_int(), 200);
  EXPECT_TRUE(json.find("complete")->as_bool());
  EXPECT_FALSE(json.find("stream")->as_bool());
  EXPECT_EQ(json.find("prompt_tokens")->as_int(),
            answer.find("usage")->find("prompt_tokens")->as_int());
  EXPECT_EQ(json.find("output_tokens")->as_int(), 7);
  EXPECT_EQ(json.find("cached_tokens")->as_int(), 0);
  EXPECT_EQ(json.find("finish")->as_string(), "length");
  const Json& moe = *answer.find("choices")->as_array()[0].find("moe_stats");
  EXPECT_DOUBLE_EQ(json.find("experts_touched_mean")->as_double(),
                   moe.find("experts_touched_mean")->as_double());
  const double first = json.find("ttft_ms")->as_double(),
               total = json.find("total_ms")->as_double();
  EXPECT_GT(first, 0);
  EXPECT_GE(total, first);
  EXPECT_GE(first, json.find("queue_ms")->as_double());
}

TEST(RequestLog, RefusalsAndOtherRoutesHaveLinesToo) {
  Lines lines;
  serve::ServerOptions options = lines.options(LogFormat::json);
  ASSERT_TRUE(options.keys.add("sesame-sesame").ok());
  RunningServer running(&demo_engine(), options);
  EXPECT_EQ(get(running.port(), "/v1/models").status, 401);
  EXPECT_EQ(get(running.port(), "/v1/models", "Authorization: Bearer sesame-sesame\r\n").status,
            200);
  EXPECT_EQ(get(running.port(), "/secret/path").status, 404);
  Client client(running.port());
  client.send("GET / HTTP/9.9\r\n\r\n");
  const int refused = client.read_response().status;
  EXPECT_EQ(parsed(lines.at(0)).find("status")->as_int(), 401);
  EXPECT_EQ(parsed(lines.at(0)).find("error")->as_string(), "invalid_api_key");
  EXPECT_EQ(parsed(lines.at(1)).find("error"), nullptr);
  EXPECT_EQ(parsed(lines.at(1)).find("status")->as_int(), 200);
  EXPECT_EQ(parsed(lines.at(1)).find("output_tokens"), nullptr) << "no call";
  EXPECT_EQ(parsed(lines.at(2)).find("route")->as_string(), "unmatched");
  EXPECT_EQ(parsed(lines.at(3)).find("status")->as_int(), refused);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(lines.at(i).find("sesame"), std::string::npos) << lines.at(i);
    EXPECT_EQ(lines.at(i).find("secret"), std::string::npos) << lines.at(i);
  }
}

TEST(RequestLog, AStreamThatFailsSaysWhy) {
  Lines lines;
  ScriptedEngine engine;
  RunningServer running(&engine, lines.options(LogFormat::json));
  Client client(running.port());
  client.send(post_text("/v1/completions", R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "x");
  engine.fail_step(1, "the step broke");
  ASSERT_TRUE(client.wait_for("error"));
  const Json json = parsed(lines.at(0));
  EXPECT_EQ(json.find("status")->as_int(), 200) << "the head had left";
  EXPECT_EQ(json.find("finish")->as_string(), "error");
  EXPECT_EQ(json.find("error")->as_string(), "internal_error");
  EXPECT_EQ(lines.at(0).find("broke"), std::string::npos) << "codes, not messages";
}

TEST(RequestLog, AClientThatLeavesIsALine) {
  Lines lines;
  ScriptedEngine engine;
  RunningServer running(&engine, lines.options(LogFormat::json));
  {
    Client client(running.port());
    client.send(post_text("/v1/completions", R"({"prompt":"a","stream":true})"));
    ASSERT_TRUE(engine.wait_submitted(1));
    engine.emit(1, "x");
    ASSERT_TRUE(client.wait_for("data: "));
  }
  ASSERT_TRUE(engine.wait_cancelled(1));
  const Json json = parsed(lines.at(0));
  EXPECT_FALSE(json.find("complete")->as_bool());
  EXPECT_EQ(json.find("finish")->as_string(), "cancelled");
  EXPECT_EQ(json.find("output_tokens")->as_int(), 1);
  EXPECT_TRUE(json.find("stream")->as_bool());
}

TEST(RequestLog, WhatIsNotKnownIsLeftOut) {
  Lines lines;
  ScriptedEngine engine;
  RunningServer running(&engine, lines.options(LogFormat::json));
  {
    Client client(running.port());
    client.send(post_text("/v1/completions", R"({"prompt":"a","stream":true})"));
    ASSERT_TRUE(engine.wait_submitted(1));
  }
  ASSERT_TRUE(engine.wait_cancelled(1));
  const Json json = parsed(lines.at(0));
  EXPECT_EQ(json.find("queue_ms"), nullptr) << "it went while it waited: 0 would be a lie";
  EXPECT_EQ(json.find("cached_tokens"), nullptr);
}

TEST(RequestLog, AClientThatLeavesBeforeItsTextIsTokensIsACallAllTheSame) {
  Lines lines;
  ScriptedEngine engine;
  RunningServer running(&engine, lines.options(LogFormat::json));
  std::promise<void> gone;
  engine.when_tokenizing = [&, left = gone.get_future().share()] { left.wait(); };
  {
    Client client(running.port());
    client.send(post_text("/v1/completions", R"({"prompt":["a","b"],"n":2,"stream":true})"));
    ::usleep(100'000);
  }
  const Json json = parsed(lines.at(0));  // written while the text still becomes tokens
  gone.set_value();
  ASSERT_NE(json.find("choices"), nullptr);
  EXPECT_EQ(json.find("choices")->as_int(), 4);
  EXPECT_TRUE(json.find("stream")->as_bool());
  EXPECT_FALSE(json.find("complete")->as_bool());
}

TEST(RequestLog, ControlCharactersAreEscaped) {
  serve::RequestRecord record;
  record.id = "a b\x1b[31m\n\"\\";
  record.status = 200;
  record.complete = true;
  const std::string text = request_line(LogFormat::text, record, 1'796'000'000'123'000'000);
  EXPECT_EQ(text,
            R"(2026-11-30T00:53:20.123Z other unmatched 200 0.0ms id=a\x20b\x1b[31m\x0a"\x5c)");
  const std::string json = request_line(LogFormat::json, record, 0);
  for (const char c : json) EXPECT_GE(c, ' ');
  EXPECT_EQ(parsed(json).find("id")->as_string(), record.id);
  EXPECT_EQ(parsed(json).find("time")->as_string(), "1970-01-01T00:00:00.000Z");
}

TEST(RequestLog, ThereIsNoneUnlessAskedFor) {
  Lines lines;
  RunningServer running(&demo_engine(), lines.options(LogFormat::none));
  EXPECT_EQ(get(running.port(), "/health").status, 200);
  EXPECT_EQ(get(running.port(), "/version").status, 200);
  EXPECT_TRUE(lines.lines.empty());
}

}  // namespace
}  // namespace switchyard
