// SPDX-License-Identifier: Apache-2.0
// Failures of other engines in the field, each as a case: named by class and number (docs/field_cases.md). Over HTTP, before a
// scripted engine where the text must be cut in a certain way, and the demonstration model elsewhere.
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

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"a"}])" + (more.empty() ? "" : "," + more) + "}";
}

/// Answers `body` with these pieces, each of which is one event.
Response scripted(const char* path, const std::string& body, const std::vector<std::string>& pieces,
                  FinishReason finish = FinishReason::stop) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(post_text(path, body));
  EXPECT_TRUE(engine.wait_submitted(1));
  for (const std::string& piece : pieces) engine.emit(1, piece);
  engine.emit(1, "", finish);
  return client.read_response();
}

std::vector<Json> chunks(const Response& response) {
  std::vector<Json> list;
  for (const std::string& event : events_of(response.body))
    if (event != "[DONE]") list.push_back(*parse_json(event, "event"));
  return list;
}

// finish_reason missing or empty: null in every chunk, then a reason in the last.
TEST(FieldFailures, Stream1FinishReasonIsNullThenAValue) {
  for (const char* path : {kChat, kCompletions}) {
    const std::string body =
        path == kChat ? chat(R"("stream":true)") : R"({"prompt":"a","stream":true})";
    const auto list = chunks(scripted(path, body, {"x", "y"}, FinishReason::length));
    ASSERT_GE(list.size(), 3u);
    for (size_t i = 0; i < list.size(); ++i) {
      const Json& finish = at(at(list[i], "choices").as_array().at(0), "finish_reason");
      if (i + 1 < list.size()) {
        EXPECT_TRUE(finish.is_null());
      } else {
        EXPECT_EQ(finish.as_string(), "length");
      }
    }
  }
}

// A flat error object, which clients do not find: every path of an error has {"error": {...}} with all four members.
TEST(FieldFailures, Stream3EveryErrorIsAnErrorObject) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const std::string requests[] = {
      post_text(kChat, "{"),
      post_text(kChat, chat(R"("n":0)")),
      post_text(kChat, chat(R"("model":"none")")),
      post_text(kCompletions, "[]"),
      post_text("/tokenize", "{}"),
      post_text("/detokenize", "{}"),
      post_text("/v1/chat/completions/render", "{}"),
      get_text("/nowhere"),
      get_text(kChat),
      get_text("/v1/models/none"),
      std::string("POST ") + kChat +
          " HTTP/1.1\r\nHost: a\r\nContent-Type: text/xml\r\nContent-Length: 2\r\n\r\n{}",
      "NONSENSE\r\n\r\n",
      std::string("GET /") + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n"};
  for (const std::string& request : requests) {
    Client client(running.port());
    client.send(request);
    const Response response = client.read_response();
    EXPECT_GE(response.status, 400) << request.substr(0, 60);
    const Json body = response.json();
    const Json& error = at(body, "error");
    ASSERT_TRUE(error.is_object()) << response.body;
    EXPECT_TRUE(at(error, "message").is_string() && at(error, "type").is_string());
    EXPECT_TRUE(at(error, "code").is_string());
    EXPECT_TRUE(at(error, "param").is_string() || at(error, "param").is_null());
  }
  Client client(running.port());  // and inside a stream
  client.send(post_text(kChat, chat(R"("stream":true)")));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "x");
  engine.fail_step(1, "broken");
  const auto events = events_of(client.read_response().body);
  EXPECT_TRUE(at(*parse_json(events.back(), "event"), "error").is_object());
}

const std::string kTool = R"("tools":[{"type":"function","function":{"name":"f"}}])";

/// Indices of the calls that chunks speak of, and the finish reason.
std::pair<std::vector<int64_t>, std::string> calls_of(const std::vector<Json>& list) {
  std::vector<int64_t> begun;
  std::string finish;
  for (const Json& chunk : list) {
    const Json& choice = at(chunk, "choices").as_array().at(0);
    if (const Json* calls = at(choice, "delta").find("tool_calls"))
      for (const Json& call : calls->as_array()) {
        EXPECT_TRUE(at(call, "index").is_integer());
        if (call.find("id") != nullptr) begun.push_back(at(call, "index").as_int());
      }
    if (at(choice, "finish_reason").is_string()) finish = at(choice, "finish_reason").as_string();
  }
  return {begun, finish};
}

// A tool call ends with "stop"; parallel calls all have index 0.
TEST(FieldFailures, Stream4ParallelAndForcedCalls) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const auto two =
      calls_of(chunks(scripted(kChat, chat(kTool + R"(,"stream":true)"), {call, call})));
  EXPECT_EQ(two.first, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(two.second, "tool_calls");
  const std::string forced =
      R"(,"stream":true,"tool_choice":{"type":"function","function":{"name":"f"}})";
  const auto one = calls_of(chunks(scripted(kChat, chat(kTool + forced), {call})));
  EXPECT_EQ(one.first, std::vector<int64_t>{0});
  EXPECT_EQ(one.second, "tool_calls");
}

// A log probability of minus infinity, or NaN, becomes 500.
TEST(FieldFailures, Stream5LogprobsHaveAFloor) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const float infinity = std::numeric_limits<float>::infinity();
  Event event;
  event.text = "a";
  event.tokens = {97};
  event.logprobs = {
      {{97, -infinity}, {{98, -infinity}, {99, std::numeric_limits<float>::quiet_NaN()}}}};
  const std::string more = R"("logprobs":true,"top_logprobs":5)";
  for (RequestId id = 1; id <= 2; ++id) {
    Client client(running.port());
    client.send(id == 1 ? post_text(kChat, chat(more))
                        : post_text(kCompletions, R"({"prompt":"a","logprobs":5})"));
    ASSERT_TRUE(engine.wait_submitted(id));
    event.id = id;
    engine.emit(event);
    engine.emit(id, "", FinishReason::stop);
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 200);
    const Json body = response.json();
    const Json& logprobs = at(at(body, "choices").as_array().at(0), "logprobs");
    if (id == 1) {
      const Json& token = at(logprobs, "content").as_array().at(0);
      EXPECT_EQ(at(token, "logprob").as_double(), -9999.0);
      for (const Json& one : at(token, "top_logprobs").as_array())
        EXPECT_EQ(at(one, "logprob").as_double(), -9999.0);
    } else {
      EXPECT_EQ(at(logprobs, "token_logprobs").as_array().at(0).as_double(), -9999.0);
    }
  }
}

// The same with a real model: all but one token cut off by top-k, and by a grammar.
TEST(FieldFailures, Stream5LogprobsBesideTopKAndAGrammar) {
  RunningServer running(&demo_engine());
  for (const char* more :
       {R"("top_k":1)", R"("response_format":{"type":"json_object"})", R"("temperature":0)"}) {
    const Response response = post(
        running.port(), kChat,
        chat(fmt::format(R"("logprobs":true,"top_logprobs":5,"max_tokens":6,"seed":1,{})", more)));
    ASSERT_EQ(response.status, 200) << response.body;
    const Json json = response.json();
    for (const Json& token :
         at(at(at(json, "choices").as_array().at(0), "logprobs"), "content").as_array()) {
      const Json::Array& top = at(token, "top_logprobs").as_array();
      ASSERT_EQ(top.size(), 5u);
      double mass = 0;
      for (const Json& one : top) {
        mass += std::exp(at(one, "logprob").as_double());
        if (json_text(at(one, "bytes")) == json_text(at(token, "bytes"))) {
          EXPECT_EQ(at(one, "logprob").as_double(), at(token, "logprob").as_double());
        }
      }
      EXPECT_GT(mass, 0.01);  // five of 8192 evenly likely ones would have 0.0006
      EXPECT_LE(mass, 1 + 1e-6);
      EXPECT_LE(at(token, "logprob").as_double(), at(top[0], "logprob").as_double());
    }
  }
}

/// The demonstration model's greedy text of at least 24 tokens, whole or streamed, with a stop text.
std::string demo_text(uint16_t port, const char* path, const std::string& more, bool stream) {
  const std::string input = path == kChat
                                ? R"("messages":[{"role":"user","content":"What is a river?"}])"
                                : R"("prompt":"The kernel provides")";
  const Response response = post(
      port, path,
      fmt::format(R"({{{},"temperature":0,"max_tokens":24,"stream":{}{}}})", input, stream, more));
  EXPECT_EQ(response.status, 200) << response.body;
  if (stream) return streamed_text(response.body);
  const Json json = response.json();
  const Json& choice = at(json, "choices").as_array().at(0);
  return (path == kChat ? at(at(choice, "message"), "content") : at(choice, "text")).as_string();
}

std::string quoted(const std::string& text) {
  std::string out;
  JsonWriter(out).string(text);
  return out;
}

// A part of a stop text leaks, where the stop text lies over several tokens.
TEST(FieldFailures, Stop1NothingOfAStopTextOverSeveralTokensIsEmitted) {
  RunningServer running(&demo_engine());
  const std::string whole = demo_text(running.port(), kChat, "", false);
  ASSERT_GT(whole.size(), 40u);
  // Twelve letters are three tokens or more of this vocabulary: each beginning of them would show.
  for (const size_t begin : {size_t{5}, size_t{11}, size_t{20}}) {
    const std::string stop = whole.substr(begin, 12);
    const std::string before = whole.substr(0, whole.find(stop));
    for (const bool stream : {false, true})
      EXPECT_EQ(demo_text(running.port(), kChat, ",\"stop\":" + quoted(stop), stream), before)
          << stop;
  }
}

// The reply is repeated, or the fix is in one endpoint only: both do the same with a stop text that straddles tokens.
TEST(FieldFailures, Stop3BothEndpointsTreatAStopTextAlike) {
  RunningServer running(&demo_engine());
  for (const char* path : {kChat, kCompletions}) {
    const std::string whole = demo_text(running.port(), path, "", false);
    ASSERT_GT(whole.size(), 30u);
    const std::string stop = whole.substr(13, 9);
    for (const bool stream : {false, true})
      EXPECT_EQ(demo_text(running.port(), path, ",\"stop\":" + quoted(stop), stream),
                whole.substr(0, whole.find(stop)))
          << path;
  }
}

// Characters whose bytes lie in several tokens become U+FFFD in a stream.
TEST(FieldFailures, Text1CharactersOverSeveralTokensAreWhole) {
  RunningServer running(&demo_engine());
  const std::string text =
      "\xF0\x9F\x98\x80 \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB";
  const std::string body = fmt::format(
      R"({{"messages":[{{"role":"user","content":"a"}}],"max_tokens":80,"stream":true,"return_token_ids":true,
          "response_format":{{"type":"json_schema","json_schema":{{"name":"a","schema":{{"const":{}}}}}}}}})",
      quoted(text));
  const Response response = post(running.port(), kChat, body);
  ASSERT_EQ(response.status, 200) << response.body;
  size_t tokens = 0;
  for (const Json& chunk : chunks(response))
    tokens += at(at(chunk, "choices").as_array().at(0), "token_ids").as_array().size();
  EXPECT_GT(tokens, 12u) << "the characters were one token each: this shows nothing";
  EXPECT_EQ(streamed_text(response.body), quoted(text));
}

// Grammars and bodies that end the process.
TEST(FieldFailures, Server4HostileBodiesAreRefusedAndTheServerGoesOn) {
  RunningServer running(&demo_engine());
  std::string nested = "{}";
  for (int i = 0; i < 9; ++i)
    nested = R"({"type":"array","items":)" + nested + R"(,"minItems":9999999})";
  std::string deep(20'000, '[');
  const std::string bodies[] = {
      chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" +
           nested + "}}"),
      chat(
          R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"#"}}})"),
      chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":[1]}})"),
      chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" + deep +
           "}}"),
      chat(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" +
           nested + "}}]"),
      chat(
          R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"none such"}}}])"),
      R"({"messages":[{"role":"user","content":null}]})",
      R"({"messages":[null]})",
      "{\"messages\":",
      ""};
  for (const std::string& body : bodies) {
    const Response response = post(running.port(), kChat, body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 200) << "\n" << response.body;
    EXPECT_TRUE(at(response.json(), "error").is_object());
  }
  EXPECT_EQ(post(running.port(), kChat, chat(R"("max_tokens":1)")).status, 200);
}

// A schema that cannot be kept is dropped, and anything comes with 200.
TEST(FieldFailures, Server5AnInvalidPatternIsRefused) {
  RunningServer running(&demo_engine());
  for (const char* pattern : {"(", "[z-a]", "a{9999999}", "(?=a)", "\\\\1"}) {
    const std::string schema = fmt::format(
        R"({{"type":"object","properties":{{"x":{{"type":"string","pattern":"{}"}}}}}})", pattern);
    const Response answer =
        post(running.port(), kChat,
             chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" +
                  schema + "}}"));
    EXPECT_EQ(answer.status, 400) << pattern << answer.body;
    EXPECT_EQ(answer.error_code(), "invalid_schema");
    EXPECT_EQ(answer.error_param(), "response_format");
    const Response call = post(
        running.port(), kChat,
        chat(
            R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":)" +
            schema + "}}]"));
    EXPECT_EQ(call.status, 400) << pattern << call.body;
    EXPECT_EQ(call.error_code(), "invalid_schema");
    EXPECT_EQ(call.error_param(), "tools");
  }
}

}  // namespace
}  // namespace switchyard
