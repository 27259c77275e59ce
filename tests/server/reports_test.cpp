// SPDX-License-Identifier: Apache-2.0
// What is reported of tokens: log probabilities in both shapes, ids, biases, and what else of a request changes its text.
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

const Json& first(const Json& json) { return at(json, "choices").as_array().at(0); }

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"What is a river?"}],"max_tokens":8,"temperature":0)" +
         (more.empty() ? "" : "," + more) + "}";
}

TEST(Reports, LogprobsOfAChatSpellItsText) {
  RunningServer running(&demo_engine());
  const Json json = post(running.port(), kChat, chat(R"("logprobs":true,"top_logprobs":3)")).json();
  const Json::Array& content = at(at(first(json), "logprobs"), "content").as_array();
  ASSERT_EQ(content.size(), 8u);
  std::string spelled;
  for (const Json& token : content) {
    for (const Json& byte : at(token, "bytes").as_array())
      spelled += static_cast<char>(byte.as_int());
    const double chosen = at(token, "logprob").as_double();
    EXPECT_LE(chosen, 0);
    const Json::Array& top = at(token, "top_logprobs").as_array();
    ASSERT_EQ(top.size(), 3u);
    EXPECT_EQ(at(top[0], "token").as_string(), at(token, "token").as_string()) << "greedy";
    EXPECT_EQ(at(top[0], "logprob").as_double(), chosen);
    EXPECT_GE(at(top[0], "logprob").as_double(), at(top[1], "logprob").as_double());
    EXPECT_GE(at(top[1], "logprob").as_double(), at(top[2], "logprob").as_double());
    double mass = 0;
    for (const Json& one : top) mass += std::exp(at(one, "logprob").as_double());
    EXPECT_LE(mass, 1 + 1e-6);
  }
  EXPECT_EQ(spelled, at(at(first(json), "message"), "content").as_string());
  const Json plain = post(running.port(), kChat, chat("")).json();
  EXPECT_TRUE(at(first(plain), "logprobs").is_null());
  EXPECT_EQ(at(at(first(plain), "message"), "content").as_string(), spelled)
      << "a report changes nothing";
}

TEST(Reports, LogprobsAreTheModelsOwnWhateverTheSamplingDoes) {
  RunningServer running(&demo_engine());
  const auto logprob = [&](const std::string& more) {
    const Json json =
        post(running.port(), kChat, chat(R"("logprobs":true,"max_completion_tokens":1)" + more))
            .json();
    return at(at(at(first(json), "logprobs"), "content").as_array().at(0), "logprob").as_double();
  };
  const double raw = logprob("");
  EXPECT_EQ(logprob(R"(,"top_k":1,"frequency_penalty":2,"seed":1)"), raw);
  EXPECT_EQ(logprob(R"(,"repetition_penalty":1.0001)"), raw);
  // Where another token is forced, the first of the report is still the model's own.
  const auto top = [&](const std::string& more) {
    const std::string body = fmt::format(
        R"({{"prompt":"The kernel provides","max_tokens":1,"logprobs":1,"return_token_ids":true{}}})",
        more);
    const Json json = post(running.port(), kCompletions, body).json();
    double best = -1e9;
    for (const auto& [token, value] :
         at(at(first(json), "logprobs"), "top_logprobs").as_array().at(0).as_object())
      best = std::max(best, value.as_double());
    return std::pair(at(first(json), "token_ids").as_array().at(0).as_int(), best);
  };
  const auto [greedy, best] = top(R"(,"temperature":0)");
  const auto forced = top(R"(,"temperature":2,"seed":1,"logit_bias":{"70":100})");
  EXPECT_EQ(forced.first, 70);
  EXPECT_NE(greedy, 70);
  EXPECT_EQ(forced.second, best);
  const auto bound = top(R"(,"temperature":2,"seed":1,"response_format":{"type":"json_object"})");
  EXPECT_NE(bound.first, greedy);
  EXPECT_EQ(bound.second, best);
}

TEST(Reports, LogprobsOfACompletionAreFourLists) {
  RunningServer running(&demo_engine());
  const std::string body =
      R"({"prompt":"The kernel provides","max_tokens":6,"temperature":0,"logprobs":2})";
  const Json json = post(running.port(), kCompletions, body).json();
  const Json& logprobs = at(first(json), "logprobs");
  const Json::Array& tokens = at(logprobs, "tokens").as_array();
  ASSERT_EQ(tokens.size(), 6u);
  ASSERT_EQ(at(logprobs, "token_logprobs").as_array().size(), 6u);
  ASSERT_EQ(at(logprobs, "top_logprobs").as_array().size(), 6u);
  ASSERT_EQ(at(logprobs, "text_offset").as_array().size(), 6u);
  std::string text;
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(at(logprobs, "text_offset").as_array()[i].as_int(),
              static_cast<int64_t>(text.size()));
    text += tokens[i].as_string();
    const Json* chosen = at(logprobs, "top_logprobs").as_array()[i].find(tokens[i].as_string());
    ASSERT_NE(chosen, nullptr);
    EXPECT_EQ(chosen->as_double(), at(logprobs, "token_logprobs").as_array()[i].as_double());
  }
  EXPECT_EQ(text, at(first(json), "text").as_string());
}

// Held until its end, it would take some 100 bytes for each of them.
TEST(Reports, AWholeAnswerHasABoundOfLogprobs) {
  RunningServer running(&demo_engine());
  const std::string call = R"({"prompt":["a","b"],"n":16,"max_tokens":)";
  const auto refused = post(running.port(), kCompletions, call + R"(2000,"logprobs":20})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(at(at(refused.json(), "error"), "param").as_string(), "logprobs");
  EXPECT_EQ(post(running.port(), kCompletions, call + R"(2,"logprobs":20})").status, 200);
}

TEST(Reports, StreamsReportEveryTokenOnce) {
  RunningServer running(&demo_engine());
  const std::string more = R"("logprobs":true,"top_logprobs":1,"return_token_ids":true)";
  const Json whole = post(running.port(), kChat, chat(more)).json();
  const Response stream = post(running.port(), kChat, chat(more + R"(,"stream":true)"));
  std::vector<int64_t> ids;
  std::string content;
  size_t prompts = 0, reported = 0;
  for (const std::string& event : events_of(stream.body)) {
    if (event == "[DONE]") continue;
    const Json json = *parse_json(event, "event");
    const Json& choice = first(json);
    for (const Json& id : at(choice, "token_ids").as_array()) ids.push_back(id.as_int());
    prompts += choice.find("prompt_token_ids") != nullptr;
    if (const Json& logprobs = at(choice, "logprobs"); !logprobs.is_null())
      for (const Json& token : at(logprobs, "content").as_array()) {
        content += at(token, "token").as_string();
        ++reported;
      }
  }
  EXPECT_EQ(prompts, 1u);
  EXPECT_EQ(reported, 8u);
  EXPECT_EQ(content, streamed_text(stream.body));
  const Json::Array& expected = at(first(whole), "token_ids").as_array();
  ASSERT_EQ(ids.size(), expected.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], expected[i].as_int());
  EXPECT_FALSE(at(first(whole), "prompt_token_ids").as_array().empty());
}

TEST(Reports, ABiasChoosesOrForbids) {
  RunningServer running(&demo_engine());
  const auto ids = [&](const std::string& more) {
    const Json json = post(running.port(), kChat, chat(R"("return_token_ids":true)" + more)).json();
    std::vector<int64_t> found;
    for (const Json& id : at(first(json), "token_ids").as_array()) found.push_back(id.as_int());
    return found;
  };
  const std::vector<int64_t> plain = ids("");
  ASSERT_FALSE(plain.empty());
  EXPECT_EQ(ids(R"(,"logit_bias":{"300":100})"), std::vector<int64_t>(8, 300));
  const auto without = ids(fmt::format(R"(,"logit_bias":{{"{}":-100}})", plain[0]));
  EXPECT_NE(without.at(0), plain[0]);
  const Response outside = post(running.port(), kChat, chat(R"("logit_bias":{"8192":1})"));
  EXPECT_EQ(outside.status, 400);
  EXPECT_EQ(outside.error_param(), "logit_bias");
}

TEST(Reports, TheStopTextMayBeIncluded) {
  RunningServer running(&demo_engine());
  const std::string whole =
      at(at(first(post(running.port(), kChat, chat("")).json()), "message"), "content").as_string();
  const std::string stop = whole.substr(whole.size() / 2, 3);
  const std::string until = whole.substr(0, whole.find(stop) + stop.size());
  for (const char* include : {"true", "false"}) {
    const std::string request =
        chat(fmt::format(R"("stop":"{}","include_stop_str_in_output":{})", stop, include));
    const std::string expected =
        std::string_view(include) == "true" ? until : until.substr(0, until.size() - stop.size());
    EXPECT_EQ(at(at(first(post(running.port(), kChat, request).json()), "message"), "content")
                  .as_string(),
              expected);
  }
}

TEST(Reports, SpecialTokensAreShownOnRequest) {
  RunningServer running(&demo_engine());
  // 1 is <|im_start|>, which leaves no text of its own.
  const std::string bias = R"("logit_bias":{"1":100},"max_completion_tokens":2)";
  const auto content = [&](const std::string& more) {
    return at(at(first(post(running.port(), kChat, chat(bias + more)).json()), "message"),
              "content")
        .as_string();
  };
  EXPECT_EQ(content(""), "");
  EXPECT_EQ(content(R"(,"skip_special_tokens":false)"), "<|im_start|><|im_start|>");
}

TEST(Reports, AMessageIsContinued) {
  RunningServer running(&demo_engine());
  const std::string body =
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"A river is"}],"continue_final_message":true})";
  const Json json = post(running.port(), "/v1/chat/completions/render", body).json();
  EXPECT_TRUE(at(json, "prompt").as_string().ends_with("<|im_start|>assistant\nA river is"));
  const std::string open =
      R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false})";
  EXPECT_TRUE(at(post(running.port(), "/v1/chat/completions/render", open).json(), "prompt")
                  .as_string()
                  .ends_with("Hi<|im_end|>\n"));
  const Response tokens = post(running.port(), "/tokenize", body);
  EXPECT_EQ(at(tokens.json(), "count").as_int(), at(json, "count").as_int());
}

TEST(Reports, EffortGoesToTemplatesThatReadIt) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const std::string body = chat(R"("reasoning_effort":"low","chat_template_kwargs":{"a":[1]})");
  const Response refused = post(running.port(), kChat, body);
  EXPECT_EQ(refused.error_param(), "reasoning_effort");
  EXPECT_EQ(refused.error_code(), "unsupported_parameter");
  engine.reads_effort = true;
  Client client(running.port());
  client.send(post_text(kChat, body));
  ASSERT_TRUE(engine.wait_submitted(1));
  EXPECT_EQ(engine.request(1).chat.template_variables, R"({"a":[1],"reasoning_effort":"low"})");
  engine.emit(1, "x", FinishReason::stop);
  EXPECT_EQ(client.read_response().status, 200);
}

}  // namespace
}  // namespace switchyard
