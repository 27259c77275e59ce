// SPDX-License-Identifier: Apache-2.0
// Tools over HTTP: what the engine is asked for, and what clients read; before a scripted engine, and the demonstration model
// that a grammar forces to call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kPath = "/v1/chat/completions";
const std::string kAdd =
    R"({"type":"function","function":{"name":"add","description":"Adds.","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}}})";
const std::string kStop = R"({"type":"function","function":{"name":"stop"}})";
const std::string kCallAdd =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>";

std::string body(const std::string& more, const std::string& tools = kAdd + "," + kStop) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"1 + 2?"}}],"tools":[{}]{}}})",
                     tools, more.empty() ? "" : "," + more);
}

/// What a client of a stream has in the end: names and arguments by index, the content, the finish reason.
struct Streamed {
  struct Call {
    std::string id, name, arguments;
    int ids = 0;
  };
  std::map<int64_t, Call> calls;
  std::string content, finish;
  int role_chunks = 0;
  bool null_content = false;
};

Streamed assemble(const std::string& stream, int64_t index = 0) {
  Streamed got;
  for (const std::string& event : events_of(stream)) {
    if (event == "[DONE]") continue;
    const Json json = *parse_json(event, "event");
    for (const Json& choice : at(json, "choices").as_array()) {
      if (at(choice, "index").as_int() != index) continue;
      const Json& delta = at(choice, "delta");
      got.role_chunks += delta.find("role") != nullptr;
      if (const Json* content = delta.find("content")) {
        if (content->is_null())
          got.null_content = true;
        else
          got.content += content->as_string();
      }
      if (const Json* calls = delta.find("tool_calls"))
        for (const Json& piece : calls->as_array()) {
          Streamed::Call& call = got.calls[at(piece, "index").as_int()];
          if (const Json* id = piece.find("id")) {
            ++call.ids;
            call.id = id->as_string();
            EXPECT_EQ(at(piece, "type").as_string(), "function");
            call.name += at(at(piece, "function"), "name").as_string();
          }
          call.arguments += at(at(piece, "function"), "arguments").as_string();
        }
      if (const Json& finish = at(choice, "finish_reason"); finish.is_string())
        got.finish = finish.as_string();
    }
  }
  return got;
}

/// The answer to `request` when the engine emits this text in pieces of three bytes.
Response answer(ScriptedEngine& engine, uint16_t port, const std::string& request,
                const std::string& text, FinishReason finish = FinishReason::stop) {
  const size_t before = engine.submitted();
  Client client(port);
  client.send(post_text(kPath, request));
  EXPECT_TRUE(engine.wait_submitted(before + 1));
  for (size_t from = 0; from < text.size(); from += 3)
    engine.emit(before + 1, text.substr(from, 3));
  engine.emit(before + 1, "", finish);
  return client.read_response();
}

TEST(Tools, CallsAreAnsweredWholeAndStreamedAlike) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const std::string text = "I add.\n" + kCallAdd + "\n<tool_call>{\"name\": \"stop\"}</tool_call>";
  const Json whole = answer(engine, running.port(), body(""), text).json();
  const Json& choice = at(whole, "choices").as_array().at(0);
  EXPECT_EQ(at(choice, "finish_reason").as_string(), "tool_calls");
  const Json& message = at(choice, "message");
  EXPECT_EQ(at(message, "content").as_string(), "I add.");
  const Json::Array& calls = at(message, "tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(at(calls[0], "type").as_string(), "function");
  EXPECT_EQ(at(at(calls[0], "function"), "name").as_string(), "add");
  EXPECT_EQ(at(at(calls[0], "function"), "arguments").as_string(), R"({"a": 1, "b": 2})");
  EXPECT_EQ(at(at(calls[1], "function"), "arguments").as_string(), "{}");
  EXPECT_NE(at(calls[0], "id").as_string(), at(calls[1], "id").as_string());

  const Streamed got =
      assemble(answer(engine, running.port(), body(R"("stream":true)"), text).body);
  EXPECT_EQ(got.content, "I add.");
  EXPECT_EQ(got.finish, "tool_calls");
  EXPECT_EQ(got.role_chunks, 1);
  ASSERT_EQ(got.calls.size(), 2u);
  EXPECT_EQ(got.calls.at(0).name, "add");
  EXPECT_EQ(got.calls.at(0).ids, 1);
  EXPECT_EQ(got.calls.at(0).arguments, R"({"a": 1, "b": 2})");
  EXPECT_EQ(got.calls.at(1).name, "stop");
}

TEST(Tools, ContentIsNullWhenNothingIsSaid) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const Json whole = answer(engine, running.port(), body(""), kCallAdd).json();
  EXPECT_TRUE(at(at(at(whole, "choices").as_array().at(0), "message"), "content").is_null());
  const Streamed got =
      assemble(answer(engine, running.port(), body(R"("stream":true)"), kCallAdd).body);
  EXPECT_TRUE(got.null_content);
  EXPECT_EQ(got.content, "");
}

TEST(Tools, ACutAnswerFinishesWithItsLength) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const Streamed got = assemble(answer(engine, running.port(), body(R"("stream":true)"),
                                       kCallAdd + "\n<tool_call>{\"na", FinishReason::length)
                                    .body);
  EXPECT_EQ(got.finish, "length");
  EXPECT_EQ(got.calls.size(), 1u);
  EXPECT_EQ(got.content, "\n<tool_call>{\"na");
}

TEST(Tools, ChoicesOfOneCallAreTakenApartEach) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(post_text(kPath, body(R"("stream":true,"n":2)")));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(1, kCallAdd.substr(0, 20));
  engine.emit(2, "Three");
  engine.emit(1, kCallAdd.substr(20), FinishReason::stop);
  engine.emit(2, ".", FinishReason::stop);
  const Response response = client.read_response();
  EXPECT_EQ(assemble(response.body, 0).calls.at(0).arguments, R"({"a": 1, "b": 2})");
  EXPECT_EQ(assemble(response.body, 0).finish, "tool_calls");
  EXPECT_EQ(assemble(response.body, 1).content, "Three.");
  EXPECT_EQ(assemble(response.body, 1).finish, "stop");
}

/// The constraint that the engine is given.
OutputConstraint constraint_of(const std::string& request) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  EXPECT_EQ(answer(engine, running.port(), request, "").status, 200);
  return engine.request(1).constraint;
}

TEST(Tools, WhatIsDemandedOrPromisedIsConstrained) {
  using Kind = OutputConstraint::Kind;
  using Instead = OutputConstraint::Instead;
  EXPECT_EQ(constraint_of(body("")).kind, Kind::none);
  EXPECT_EQ(constraint_of(body(R"("tool_choice":"none")")).kind, Kind::none);
  const OutputConstraint required = constraint_of(body(R"("tool_choice":"required")"));
  EXPECT_EQ(required.kind, Kind::tool_calls);
  EXPECT_EQ(required.instead, Instead::nothing);
  EXPECT_TRUE(required.several_calls);
  ASSERT_EQ(required.tools.size(), 2u);
  EXPECT_NE(required.tools[0].parameters.find("\"required\""), std::string::npos);
  const OutputConstraint named =
      constraint_of(body(R"("tool_choice":{"type":"function","function":{"name":"stop"}})"));
  ASSERT_EQ(named.tools.size(), 1u);
  EXPECT_EQ(named.tools[0].name, "stop");
  EXPECT_FALSE(named.several_calls);
  const OutputConstraint alone = constraint_of(body(R"("parallel_tool_calls":false)"));
  EXPECT_EQ(alone.kind, Kind::tool_calls);
  EXPECT_EQ(alone.instead, Instead::text);
  EXPECT_FALSE(alone.several_calls);
  EXPECT_EQ(alone.tools[0].parameters, "") << "nobody asked for its schema to be kept";
  const OutputConstraint strict = constraint_of(body(
      "",
      kStop +
          R"(,{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}})"));
  EXPECT_EQ(strict.instead, Instead::text);
  EXPECT_EQ(strict.tools[0].parameters, "");
  EXPECT_EQ(strict.tools[1].parameters, R"({"type":"object"})");
  const OutputConstraint both = constraint_of(body(R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(both.kind, Kind::tool_calls);
  EXPECT_EQ(both.instead, Instead::json_object);
}

TEST(Tools, TheModelSeesToolsCallsAndAnswers) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const std::string conversation = fmt::format(
      R"({{"tools":[{}],"messages":[{{"role":"user","content":"1 + 2?"}},
          {{"role":"assistant","content":null,"refusal":null,"annotations":[],"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"add","arguments":"{{\"a\": 1}}"}}}}]}},
          {{"role":"tool","tool_call_id":"c1","content":"3"}}]}})",
      kAdd);
  std::vector<Message> seen;
  std::string tools;
  EXPECT_EQ(answer(engine, running.port(), conversation, "3").status, 200);
  const Response rendered = post(running.port(), "/v1/chat/completions/render", conversation);
  EXPECT_EQ(rendered.status, 200) << rendered.body;
  EXPECT_EQ(at(rendered.json(), "tool_format").as_string(), "hermes");
  // What the model is shown is the business of the template; that the demonstration model's shows all of it:
  RunningServer demo(&demo_engine());
  const Json json = post(demo.port(), "/v1/chat/completions/render", conversation).json();
  const std::string& prompt = at(json, "prompt").as_string();
  for (const char* part :
       {R"("name":"add")", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
        "<|im_start|>tool\n3<|im_end|>"})
    EXPECT_NE(prompt.find(part), std::string::npos) << part << " in " << prompt;
  EXPECT_EQ(at(json, "count").as_int(), static_cast<int64_t>(at(json, "tokens").as_array().size()));
  const Json back = post(demo.port(), "/detokenize",
                         fmt::format(R"({{"tokens":{}}})",
                                     [&] {
                                       std::string out;
                                       JsonWriter(out).value(at(json, "tokens"));
                                       return out;
                                     }()))
                        .json();
  EXPECT_EQ(at(back, "prompt").as_string(), prompt);
  const std::string hidden =
      post(demo.port(), "/v1/chat/completions/render", body(R"("tool_choice":"none")")).body;
  EXPECT_EQ(hidden.find("add"), std::string::npos) << "tools that may not be called are not shown";
}

TEST(Tools, AModelWithoutAFormatSaysSo) {
  ScriptedEngine engine;
  engine.format = Error(Code::unsupported, "tokenizer_config.json writes no tool calls");
  RunningServer running(&engine);
  const Response response = post(running.port(), kPath, body(""));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.error_code(), "unsupported_parameter");
  EXPECT_EQ(response.error_param(), "tools");
  EXPECT_EQ(answer(engine, running.port(), body(R"("tool_choice":"none")"), "x").status, 200);
}

TEST(Tools, MarkersThatAreSpecialTokensLeaveTheirText) {
  ScriptedEngine engine;
  ToolFormat format;
  format.special_tokens = {7};
  engine.format = format;
  RunningServer running(&engine);
  answer(engine, running.port(), body(""), "x");
  EXPECT_EQ(engine.request(1).sampling.shown_tokens, std::vector<int32_t>{7});
}

std::string demo_body(const std::string& more, const std::string& tools = kAdd + "," + kStop) {
  return body(R"("temperature":1,"seed":5,"max_tokens":160)" + ("," + more), tools);
}

/// Arguments of add that its schema allows.
void check_add(const std::string& arguments) {
  const auto json = parse_json(arguments, "arguments");
  ASSERT_TRUE(json.ok()) << arguments;
  EXPECT_EQ(json->as_object().size(), 2u) << arguments;
  EXPECT_TRUE(at(*json, "a").is_integer() && at(*json, "b").is_integer()) << arguments;
}

TEST(Tools, AModelIsForcedToCall) {
  RunningServer running(&demo_engine());
  for (int seed = 0; seed < 4; ++seed) {
    const std::string request = body(fmt::format(
        R"("temperature":1,"seed":{},"max_tokens":160,"tool_choice":{{"type":"function","function":{{"name":"add"}}}})",
        seed));
    const Json whole = post(running.port(), kPath, request).json();
    const Json& choice = at(whole, "choices").as_array().at(0);
    EXPECT_EQ(at(choice, "finish_reason").as_string(), "tool_calls") << json_text(whole);
    const Json& message = at(choice, "message");
    EXPECT_TRUE(at(message, "content").is_null());
    ASSERT_EQ(at(message, "tool_calls").as_array().size(), 1u);
    const std::string& arguments =
        at(at(at(message, "tool_calls").as_array()[0], "function"), "arguments").as_string();
    check_add(arguments);
    std::string stream = request;
    stream.insert(1, R"("stream":true,)");
    const Streamed got = assemble(post(running.port(), kPath, stream).body);
    EXPECT_EQ(got.finish, "tool_calls");
    EXPECT_EQ(got.calls.at(0).name, "add");
    EXPECT_EQ(got.calls.at(0).arguments, arguments) << "the same seed";
  }
}

TEST(Tools, AStopTextWithinACallIsNoToolCalls) {
  // A client that is told "tool_calls" runs them: their arguments must be JSON.
  RunningServer running(&demo_engine());
  for (const bool stream : {false, true}) {
    const auto ask = [&](const std::string& stop) {
      const std::string more = fmt::format(
          R"("temperature":1,"seed":3,"max_tokens":160,"parallel_tool_calls":false,"tool_choice":"required","stop":[{}],"stream":{})",
          stop, stream);
      const Response response = post(running.port(), kPath, body(more, kAdd));
      if (stream) return assemble(response.body);
      const Json json = response.json();
      const Json& choice = at(json, "choices").as_array().at(0);
      Streamed got;
      got.finish = at(choice, "finish_reason").as_string();
      const Json& message = at(choice, "message");
      if (at(message, "content").is_string()) got.content = at(message, "content").as_string();
      if (const Json* calls = message.find("tool_calls"))
        got.calls[0].arguments = at(at(calls->as_array()[0], "function"), "arguments").as_string();
      return got;
    };
    const Streamed cut = ask(R"("}")");
    EXPECT_EQ(cut.finish, "stop");
    ASSERT_EQ(cut.calls.size(), 1u);
    EXPECT_FALSE(parse_json(cut.calls.at(0).arguments, "arguments").ok())
        << "else nothing is shown";
    const Streamed head = ask(R"("\"arguments\"")");
    EXPECT_EQ(head.finish, "stop");
    EXPECT_TRUE(head.calls.empty());
    EXPECT_EQ(head.content, "") << "markup is no answer";
    EXPECT_EQ(ask(R"("no such text")").finish, "tool_calls");
  }
}

TEST(Tools, SchemasThatCannotBeKeptAreRefusedBeforeAnythingIsGenerated) {
  RunningServer running(&demo_engine());
  const std::string impossible =
      R"({"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"x":{"not":{}}}}}})";
  const Response strict = post(running.port(), kPath, demo_body(R"("stream":true)", impossible));
  EXPECT_EQ(strict.status, 400) << strict.body;
  EXPECT_EQ(strict.error_code(), "invalid_schema");
  EXPECT_EQ(strict.error_param(), "tools");
  const std::string loose =
      R"({"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"not":{}}}}}})";
  EXPECT_EQ(post(running.port(), kPath, demo_body(R"("tool_choice":"required")", loose)).status,
            400);
  EXPECT_EQ(post(running.port(), kPath, body(R"("max_tokens":2)", loose)).status, 200)
      << "nothing was promised of its arguments";
}

TEST(Tools, WhatIsWrongIsNamed) {
  RunningServer running(&demo_engine());
  const std::string own =
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1,"logit_bias":{"5":60,"05":60}})";
  const std::pair<std::string, const char*> cases[] = {
      {body(R"("tool_choice":{"type":"custom","function":{"name":"add"}})"), "tool_choice"},
      {own, "logit_bias"},
  };
  for (const auto& [request, param] : cases) {
    const Response response = post(running.port(), kPath, request);
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(response.error_param(), param);
  }
}

TEST(Tools, ArgumentsAreAnObjectAlsoBehindAReference) {
  RunningServer running(&demo_engine());
  const auto referring = [](const std::string& to) {
    return R"({"type":"function","function":{"name":"f","parameters":{"$ref":"#/$defs/a","$defs":{"a":)" +
           to + "}}}}";
  };
  const std::string required = R"("tool_choice":"required","parallel_tool_calls":false)";
  const Response text =
      post(running.port(), kPath, demo_body(required, referring(R"({"type":"string"})")));
  EXPECT_EQ(text.status, 400) << text.body;
  EXPECT_EQ(text.error_code(), "invalid_schema");
  const Response object = post(
      running.port(), kPath,
      demo_body(
          required,
          referring(
              R"({"type":"object","properties":{"q":{"type":"boolean"}},"required":["q"],"additionalProperties":false})")));
  ASSERT_EQ(object.status, 200) << object.body;
  EXPECT_NE(object.body.find(R"({\"q\": )"), std::string::npos) << object.body;
}

TEST(Tools, SchemaOrCallsAreBothKept) {
  RunningServer running(&demo_engine());
  const Json json =
      post(
          running.port(), kPath,
          demo_body(
              R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}}})"))
          .json();
  const Json& choice = at(json, "choices").as_array().at(0);
  const Json& message = at(choice, "message");
  if (message.find("tool_calls") == nullptr) {
    const auto content = parse_json(at(message, "content").as_string(), "content");
    ASSERT_TRUE(content.ok()) << json_text(message);
    EXPECT_TRUE(at(*content, "x").is_integer());
  } else {
    EXPECT_TRUE(at(message, "content").is_null());
  }
}

}  // namespace
}  // namespace switchyard
