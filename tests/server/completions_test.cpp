// SPDX-License-Identifier: Apache-2.0
// Both endpoints before the demonstration model: what is streamed, what is answered whole and what the engine says by
// itself are one text; the shapes are those that OpenAI's clients read.
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

std::string chat_body(const std::string& question, int tokens, const std::string& more = "") {
  return fmt::format(
      R"({{"model":"demo","messages":[{{"role":"user","content":"{}"}}],"max_tokens":{},"temperature":0{}}})",
      question, tokens, more);
}

std::string chat_reference(const std::string& question, int tokens) {
  Request request;
  request.messages = {{"user", question}};
  return greedy_text(demo_engine(), request, tokens);
}

std::string message_text(const Response& response) {
  return at(at(at(response.json(), "choices").as_array()[0], "message"), "content").as_string();
}

TEST(Completions, WholeStreamedAndTheEnginesTextAreTheSame) {
  RunningServer running(&demo_engine());
  const std::string expected = chat_reference("What is a river?", 24);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(message_text(post(running.port(), kChat, chat_body("What is a river?", 24))), expected);
  const Response stream =
      post(running.port(), kChat, chat_body("What is a river?", 24, R"(,"stream":true)"));
  EXPECT_TRUE(stream.complete);
  EXPECT_EQ(streamed_text(stream.body), expected);

  Request prompt;
  prompt.prompt = "The kernel provides";
  const std::string continued = greedy_text(demo_engine(), prompt, 16);
  const std::string body =
      R"({"prompt":"The kernel provides","max_tokens":16,"temperature":0,"stream":)";
  const Json whole = post(running.port(), kCompletions, body + "false}").json();
  EXPECT_EQ(at(at(whole, "choices").as_array()[0], "text").as_string(), continued);
  EXPECT_EQ(streamed_text(post(running.port(), kCompletions, body + "true}").body), continued);
}

TEST(Completions, TheWholeAnswerHasTheShapeOfOpenAIs) {
  RunningServer running(&demo_engine());
  const Response response = post(running.port(), kChat, chat_body("What is a river?", 5));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_TRUE(response.headers.contains("x-request-id"));
  EXPECT_TRUE(response.headers.contains("openai-processing-ms"));
  const Json json = response.json();
  EXPECT_EQ(at(json, "object").as_string(), "chat.completion");
  EXPECT_EQ(at(json, "id").as_string().rfind("chatcmpl-", 0), 0u);
  EXPECT_EQ(at(json, "model").as_string(), "demo");
  EXPECT_GT(at(json, "created").as_int(), 1'600'000'000);
  const Json& choice = at(json, "choices").as_array().at(0);
  EXPECT_EQ(at(choice, "finish_reason").as_string(), "length");
  EXPECT_EQ(at(at(choice, "message"), "role").as_string(), "assistant");
  const Json& usage = at(json, "usage");
  EXPECT_EQ(at(usage, "completion_tokens").as_int(), 5);
  EXPECT_EQ(at(usage, "total_tokens").as_int(), at(usage, "prompt_tokens").as_int() + 5);
}

TEST(Completions, TheStreamKeepsItsRules) {
  RunningServer running(&demo_engine());
  const Response response =
      post(running.port(), kChat,
           chat_body("What is a river?", 4,
                     R"(,"stream":true,"n":2,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(response.headers.at("cache-control"), "no-cache");
  const auto events = events_of(response.body);
  ASSERT_GE(events.size(), 6u);
  EXPECT_EQ(events.back(), "[DONE]");
  int roles[2] = {0, 0}, finishes[2] = {0, 0};
  std::set<std::string> ids;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const Json json = *parse_json(events[i], "event");
    EXPECT_EQ(json.find("usage"), nullptr);
    ids.insert(at(json, "id").as_string());
    const Json& choice = at(json, "choices").as_array().at(0);
    const auto index = static_cast<size_t>(at(choice, "index").as_int());
    EXPECT_EQ(finishes[index], 0) << "a chunk after the last of its choice";
    const bool has_role = at(choice, "delta").find("role") != nullptr;
    EXPECT_EQ(has_role, roles[index] == 0) << "the role comes first, and once";
    roles[index] += has_role;
    const Json& finish = at(choice, "finish_reason");
    if (finish.is_null()) continue;
    EXPECT_EQ(finish.as_string(), "length");
    EXPECT_TRUE(at(choice, "delta").as_object().empty());
    ++finishes[index];
  }
  EXPECT_EQ(finishes[0], 1);
  EXPECT_EQ(finishes[1], 1);
  EXPECT_EQ(ids.size(), 1u);
  const Json last = *parse_json(events[events.size() - 2], "usage");
  EXPECT_TRUE(at(last, "choices").as_array().empty());
  EXPECT_EQ(at(at(last, "usage"), "completion_tokens").as_int(), 8);
}

TEST(Completions, ManyAtOnceSayWhatEachSaysAlone) {
  RunningServer running(&demo_engine());
  const std::vector<std::string> questions = {
      "What is a river?",  "What is a kernel?",  "Who was David?", "What is Python?",
      "Was ist ein Haus?", "What is a licence?", "What is love?",  "Que es un perro?"};
  std::vector<std::string> alone, together(questions.size());
  for (const std::string& question : questions) alone.push_back(chat_reference(question, 20));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < questions.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        const bool stream = (i + static_cast<size_t>(round)) % 2 == 0;
        const Response response = post(
            running.port(), kChat, chat_body(questions[i], 20, stream ? R"(,"stream":true)" : ""));
        together[i] = stream ? streamed_text(response.body) : message_text(response);
        if (together[i] != alone[i]) return;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < questions.size(); ++i) EXPECT_EQ(together[i], alone[i]) << questions[i];
}

TEST(Completions, PromptsAndChoicesAreNumberedInOrder) {
  RunningServer running(&demo_engine());
  const Json json =
      post(
          running.port(), kCompletions,
          R"({"prompt":["The kernel provides","In the beginning"],"n":2,"max_tokens":6,"temperature":0})")
          .json();
  const Json::Array& choices = at(json, "choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    Request request;
    request.prompt = i < 2 ? "The kernel provides" : "In the beginning";
    EXPECT_EQ(at(choices[i], "index").as_int(), static_cast<int64_t>(i));
    EXPECT_EQ(at(choices[i], "text").as_string(), greedy_text(demo_engine(), request, 6));
  }
  EXPECT_EQ(at(at(json, "usage"), "completion_tokens").as_int(), 24);
}

TEST(Completions, TheSameSeedGivesTheSameTextAndChoicesDiffer) {
  RunningServer running(&demo_engine());
  const std::string body =
      R"({"prompt":"The","n":2,"max_tokens":12,"temperature":1.5,"top_p":1,"top_k":0,"seed":7})";
  const Json first = post(running.port(), kCompletions, body).json();
  const Json second = post(running.port(), kCompletions, body).json();
  const auto text = [](const Json& json, size_t i) {
    return at(at(json, "choices").as_array().at(i), "text").as_string();
  };
  EXPECT_EQ(text(first, 0), text(second, 0));
  EXPECT_EQ(text(first, 1), text(second, 1));
  EXPECT_NE(text(first, 0), text(first, 1));
}

TEST(Completions, AStopTextIsNotInTheAnswerOnEitherEndpoint) {
  RunningServer running(&demo_engine());
  const std::string whole = chat_reference("What is a river?", 24);
  const std::string stop = whole.substr(whole.size() / 2, 4);
  const std::string before = whole.substr(0, whole.find(stop));
  const std::string more = fmt::format(R"(,"stop":["{}"])", stop);
  const Response chat = post(running.port(), kChat, chat_body("What is a river?", 24, more));
  EXPECT_EQ(message_text(chat), before);
  EXPECT_NE(chat.body.find(R"("finish_reason":"stop")"), std::string::npos);
  const Response stream =
      post(running.port(), kChat, chat_body("What is a river?", 24, more + R"(,"stream":true)"));
  EXPECT_EQ(streamed_text(stream.body), before);
}

TEST(Completions, LengthsAreDefaultsOrErrorsWithTheirNumbers) {
  RunningServer running(&demo_engine());
  const Json json =
      post(running.port(), kCompletions, R"({"prompt":"The","temperature":0,"ignore_eos":true})")
          .json();
  EXPECT_EQ(at(at(json, "usage"), "completion_tokens").as_int(), 16);
  const Response chosen =
      post(running.port(), kCompletions,
           R"({"prompt":"The","ignore_eos":true,"max_tokens":9,"max_completion_tokens":3})");
  EXPECT_EQ(at(at(chosen.json(), "usage"), "completion_tokens").as_int(), 3);
  const Response refused =
      post(running.port(), kCompletions, R"({"prompt":"The","max_tokens":2048})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error_code(), "context_length_exceeded");
  EXPECT_NE(refused.body.find("2048 tokens"), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("2049 were requested"), std::string::npos) << refused.body;
}

TEST(Completions, ASchemaIsKeptOrRefusedAndNeverDropped) {
  RunningServer running(&demo_engine());
  const auto format = [](const std::string& schema) {
    return R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" +
           schema + "}}";
  };
  const std::string object =
      R"({"type":"object","properties":{"wet":{"type":"boolean"}},"required":["wet"],"additionalProperties":false})";
  const Response whole =
      post(running.port(), kChat, chat_body("What is a river?", 40, format(object)));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_NE(whole.body.find(R"("finish_reason":"stop")"), std::string::npos) << whole.body;
  const auto json = parse_json(message_text(whole), "content");
  ASSERT_TRUE(json.ok()) << whole.body;
  EXPECT_TRUE(at(*json, "wet").is_bool());
  const Response streamed =
      post(running.port(), kChat,
           chat_body("What is a river?", 40, format(object) + R"(,"stream":true)"));
  EXPECT_EQ(streamed_text(streamed.body), message_text(whole));
  for (const char* wrong :
       {R"({"type":"no such type"})", R"({"type":"string","pattern":"("})", "1"}) {
    const Response refused =
        post(running.port(), kChat, chat_body("What is a river?", 40, format(wrong)));
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_EQ(refused.error_code(), "invalid_schema") << wrong;
    EXPECT_EQ(refused.error_param(), "response_format") << wrong;
  }
}

TEST(Completions, MoeStatsOfARequestOnlyWhenAsked) {
  RunningServer running(&demo_engine());
  const std::string body = R"({"prompt":"The kernel","max_tokens":4,"temperature":0)";
  EXPECT_EQ(post(running.port(), kCompletions, body + "}").body.find("moe_stats"),
            std::string::npos);
  const Json json =
      post(running.port(), kCompletions, body + R"(,"moe_stats":true,"cache_prompt":false})")
          .json();
  const Json& moe = at(at(json, "choices").as_array().at(0), "moe_stats");
  EXPECT_EQ(at(moe, "layers").as_int(), 6);
  EXPECT_GE(at(moe, "experts_touched_mean").as_double(), 4);
  EXPECT_GE(at(moe, "imbalance_max").as_double(), at(moe, "imbalance_mean").as_double());
}

}  // namespace
}  // namespace switchyard
