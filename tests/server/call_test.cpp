// SPDX-License-Identifier: Apache-2.0
// Bodies that are refused, each with its code and the field that is to blame; and those that are not.
#include "serve/call.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace switchyard::serve {
namespace {

struct Refused {
  const char* name;
  std::string body;
  const char* code;
  const char* param;
};

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"a"}])" + (more.empty() ? "" : "," + more) + "}";
}

std::string message(const std::string& text) { return R"({"messages":[)" + text + "]}"; }

std::string nested(int levels) {
  return chat(R"("metadata":)" + std::string(static_cast<size_t>(levels), '[') +
              std::string(static_cast<size_t>(levels), ']'));
}

const Refused kRefused[] = {
    {"empty", "", "invalid_json", ""},
    {"no JSON", "{", "invalid_json", ""},
    {"no object", "[]", "invalid_json", ""},
    {"BOM", "\xEF\xBB\xBF" + chat(""), "invalid_json", ""},
    {"UTF-8", chat("\"user\":\"\xFF\""), "invalid_json", ""},
    {"duplicate key", chat(R"("n":1,"n":2)"), "invalid_json", ""},
    {"lone surrogate", chat(R"("user":"\ud800")"), "invalid_json", ""},
    {"trailing bytes", chat("") + "x", "invalid_json", ""},
    {"too deep", nested(40), "invalid_json", ""},
    {"far too deep", nested(100'000), "invalid_json", ""},
    {"NaN", chat(R"("temperature":NaN)"), "invalid_json", ""},
    {"number beyond double", chat(R"("temperature":1e999)"), "invalid_json", ""},
    {"no messages", "{}", "missing_field", "messages"},
    {"null messages", R"({"messages":null})", "missing_field", "messages"},
    {"messages no array", R"({"messages":"a"})", "invalid_value", "messages"},
    {"no message", message(""), "invalid_value", "messages"},
    {"message no object", message("1"), "invalid_value", "messages[0]"},
    {"no role", message(R"({"content":"a"})"), "missing_field", "messages[0].role"},
    {"role", message(R"({"role":"robot","content":"a"})"), "invalid_value", "messages[0].role"},
    {"answer of no call", message(R"({"role":"tool","content":"a"})"), "missing_field",
     "messages[0].tool_call_id"},
    {"null content", message(R"({"role":"user","content":null})"), "missing_field",
     "messages[0].content"},
    {"content number", message(R"({"role":"user","content":1})"), "invalid_value",
     "messages[0].content"},
    {"image",
     message(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///"}}]})"),
     "unsupported_parameter", "messages[0].content"},
    {"tool calls", message(R"({"role":"assistant","content":"a","tool_calls":[{}]})"),
     "invalid_value", "messages[0].tool_calls[0]"},
    {"tool calls of a user",
     message(R"({"role":"user","content":"a","tool_calls":[{"id":"1","function":{"name":"f"}}]})"),
     "unsupported_parameter", "messages[0].tool_calls"},
    {"arguments",
     message(
         R"({"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{"}}]})"),
     "invalid_value", "messages[0].tool_calls[0].function.arguments"},
    {"call without a name",
     message(R"({"role":"assistant","tool_calls":[{"id":"1","function":{}}]})"), "missing_field",
     "messages[0].tool_calls[0].function.name"},
    {"NUL", message(R"({"role":"user","content":"a\u0000b"})"), "invalid_value",
     "messages[0].content"},
    {"tools", chat(R"("tools":[{"type":"function"}])"), "invalid_value", "tools[0]"},
    {"tools no array", chat(R"("tools":{"a":1})"), "invalid_value", "tools"},
    {"tool of another type", chat(R"("tools":[{"type":"custom","function":{"name":"f"}}])"),
     "invalid_value", "tools[0]"},
    {"tool without a name", chat(R"("tools":[{"type":"function","function":{}}])"), "invalid_value",
     "tools[0].function.name"},
    {"name of a tool", chat(R"("tools":[{"type":"function","function":{"name":"a b"}}])"),
     "invalid_value", "tools[0].function.name"},
    {"two tools of a name",
     chat(
         R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])"),
     "invalid_value", "tools[1].function.name"},
    {"parameters", chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":1}}])"),
     "invalid_schema", "tools[0].function.parameters"},
    {"parameters of another type",
     chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"array"}}}])"),
     "invalid_schema", "tools[0].function.parameters"},
    {"unknown type",
     chat(
         R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"int"}}}}}])"),
     "invalid_schema", "tools[0].function.parameters"},
    {"strict", chat(R"("tools":[{"type":"function","function":{"name":"f","strict":1}}])"),
     "invalid_value", "tools[0].function.strict"},
    {"choice without tools", chat(R"("tool_choice":"required")"), "invalid_value", "tool_choice"},
    {"choice of none such",
     chat(
         R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})"),
     "invalid_value", "tool_choice"},
    {"choice", chat(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"any")"),
     "invalid_value", "tool_choice"},
    {"parallel", chat(R"("parallel_tool_calls":1)"), "invalid_value", "parallel_tool_calls"},
    {"response_format", chat(R"("response_format":{"type":"xml"})"), "invalid_value",
     "response_format"},
    {"response_format no object", chat(R"("response_format":1)"), "invalid_value",
     "response_format"},
    {"no schema", chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})"),
     "missing_field", "response_format.json_schema.schema"},
    {"logprobs", chat(R"("logprobs":5)"), "invalid_value", "logprobs"},
    {"top_logprobs", chat(R"("logprobs":true,"top_logprobs":21)"), "invalid_value", "top_logprobs"},
    {"top_logprobs alone", chat(R"("top_logprobs":2)"), "invalid_value", "top_logprobs"},
    {"logit_bias", chat(R"("logit_bias":{"1":101})"), "invalid_value", "logit_bias"},
    {"logit_bias of a word", chat(R"("logit_bias":{"river":1})"), "invalid_value", "logit_bias"},
    {"logit_bias no object", chat(R"("logit_bias":[1])"), "invalid_value", "logit_bias"},
    {"logit_bias no number", chat(R"("logit_bias":{"1":"2"})"), "invalid_value", "logit_bias"},
    {"echo", chat(R"("echo":true)"), "unsupported_parameter", "echo"},
    {"best_of", chat(R"("best_of":2)"), "unsupported_parameter", "best_of"},
    {"suffix", chat(R"("suffix":"a")"), "unsupported_parameter", "suffix"},
    {"kwargs", chat(R"("chat_template_kwargs":1)"), "invalid_value", "chat_template_kwargs"},
    {"kwargs that are the server's", chat(R"("chat_template_kwargs":{"messages":[]})"),
     "invalid_value", "chat_template_kwargs"},
    {"effort", chat(R"("reasoning_effort":"huge")"), "invalid_value", "reasoning_effort"},
    {"continue", chat(R"("continue_final_message":true)"), "invalid_value",
     "continue_final_message"},
    {"continue and begin", chat(R"("continue_final_message":true,"add_generation_prompt":true)"),
     "invalid_value", "add_generation_prompt"},
    {"audio", chat(R"("audio":{})"), "unsupported_parameter", "audio"},
    {"prompt in chat", chat(R"("prompt":"a")"), "unsupported_parameter", "prompt"},
    {"n 0", chat(R"("n":0)"), "invalid_value", "n"},
    {"n huge", chat(R"("n":17)"), "invalid_value", "n"},
    {"n beyond int", chat(R"("n":18446744073709551615)"), "invalid_value", "n"},
    {"n fraction", chat(R"("n":1.5)"), "invalid_value", "n"},
    {"n string", chat(R"("n":"1")"), "invalid_value", "n"},
    {"max_tokens 0", chat(R"("max_tokens":0)"), "invalid_value", "max_tokens"},
    {"max_tokens negative", chat(R"("max_tokens":-1)"), "invalid_value", "max_tokens"},
    {"temperature", chat(R"("temperature":-0.1)"), "invalid_value", "temperature"},
    {"temperature high", chat(R"("temperature":2.1)"), "invalid_value", "temperature"},
    {"top_p 0", chat(R"("top_p":0)"), "invalid_value", "top_p"},
    {"top_p 0 as a float", chat(R"("top_p":1e-300)"), "invalid_value", "top_p"},
    {"top_k", chat(R"("top_k":-2)"), "invalid_value", "top_k"},
    {"penalty", chat(R"("presence_penalty":3)"), "invalid_value", "presence_penalty"},
    {"repetition", chat(R"("repetition_penalty":0)"), "invalid_value", "repetition_penalty"},
    {"seed", chat(R"("seed":1.5)"), "invalid_value", "seed"},
    {"stop empty", chat(R"("stop":"")"), "invalid_value", "stop"},
    {"stop many",
     chat(R"("stop":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"])"),
     "invalid_value", "stop"},
    {"stop number", chat(R"("stop":[1])"), "invalid_value", "stop"},
    {"stream", chat(R"("stream":1)"), "invalid_value", "stream"},
    {"stream_options alone", chat(R"("stream_options":{"include_usage":true})"), "invalid_value",
     "stream_options"},
    {"include_usage", chat(R"("stream":true,"stream_options":{"include_usage":1})"),
     "invalid_value", "stream_options.include_usage"},
    {"priority", chat(R"("priority":1001)"), "invalid_value", "priority"},
};

TEST(Call, RefusalsNameTheirField) {
  for (const Refused& refused : kRefused) {
    Call call;
    const auto error = parse_call(refused.body, Endpoint::chat, {}, UnknownFields::ignored, call);
    ASSERT_TRUE(error) << refused.name;
    EXPECT_EQ(error->status, 400) << refused.name;
    EXPECT_EQ(error->code, refused.code) << refused.name << ": " << error->message;
    EXPECT_EQ(error->param, refused.param) << refused.name << ": " << error->message;
  }
}

std::string many_tools(int count) {
  std::string list;
  for (int i = 0; i < count; ++i)
    list +=
        fmt::format(R"({}{{"type":"function","function":{{"name":"f{}"}}}})", i == 0 ? "" : ",", i);
  return chat("\"tools\":[" + list + "]");
}

TEST(Call, ToolsAreCounted) {
  Call most, more;
  EXPECT_FALSE(parse_call(many_tools(256), Endpoint::chat, {}, UnknownFields::ignored, most));
  EXPECT_EQ(most.tools.tools.size(), 256u);
  const auto error = parse_call(many_tools(257), Endpoint::chat, {}, UnknownFields::ignored, more);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "tools");
}

TEST(Call, FieldsOfChatsAreNoneOfCompletions) {
  for (const char* field : {R"("tools":[{}])", R"("tool_choice":"auto")", R"("top_logprobs":1)",
                            R"("chat_template_kwargs":{"a":1})"}) {
    Call call;
    const auto error = parse_call(std::string(R"({"prompt":"a",)") + field + "}",
                                  Endpoint::completions, {}, UnknownFields::ignored, call);
    ASSERT_TRUE(error) << field;
    EXPECT_EQ(error->code, "unsupported_parameter");
  }
  Call call;
  EXPECT_FALSE(parse_call(R"({"prompt":"a","tools":[],"logprobs":5})", Endpoint::completions, {},
                          UnknownFields::ignored, call));
  EXPECT_EQ(call.prompts.at(0).sampling.logprobs, 5);
}

TEST(Call, AnswersOfToolsGetTheNameOfWhatTheyAnswer) {
  Call call;
  const auto error = parse_call(
      message(
          R"({"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","tool_call_id":"x","content":[{"type":"text","text":"b"}]})"),
      Endpoint::chat, {}, UnknownFields::ignored, call);
  ASSERT_FALSE(error) << error->message;
  const std::vector<Message>& messages = call.prompts.at(0).messages;
  EXPECT_EQ(messages.at(1).tool_calls.at(0).arguments, R"({"a":1})");
  EXPECT_EQ(messages.at(2).name, "f");
  EXPECT_EQ(messages.at(2).content, "b");
}

TEST(Call, PromptsComeInFourForms) {
  const auto parse = [](const std::string& prompt) {
    Call call;
    const auto error = parse_call(R"({"prompt":)" + prompt + "}", Endpoint::completions, {},
                                  UnknownFields::ignored, call);
    return error ? std::vector<Request>() : call.prompts;
  };
  EXPECT_EQ(parse(R"("a")").at(0).prompt, "a");
  EXPECT_EQ(parse(R"(["a","b"])").at(1).prompt, "b");
  EXPECT_EQ(parse("[1,2]").at(0).prompt_tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parse("[[1],[2,3]]").at(1).prompt_tokens, (std::vector<int32_t>{2, 3}));
  for (const char* wrong :
       {"[]", "{}", "1", "[1,\"a\"]", "[-1]", "[1.5]", "[4294967296]", "[{}]", "[[[1]]]"})
    EXPECT_TRUE(parse(wrong).empty()) << wrong;
}

TEST(Call, WhatChangesNothingIsAccepted) {
  Call call;
  const auto error = parse_call(
      chat(
          R"("stop":null,"tools":[],"tool_choice":"none","response_format":{"type":"text"},"logprobs":false,
              "top_logprobs":0,"logit_bias":{},"user":"u","metadata":{"a":"b"},"store":true,"whatever":1)"),
      Endpoint::chat, {}, UnknownFields::ignored, call);
  EXPECT_FALSE(error) << error->message;
}

TEST(Call, StrictModeRefusesUnknownFields) {
  Call call;
  const auto error =
      parse_call(chat(R"("whatever":1)"), Endpoint::chat, {}, UnknownFields::refused, call);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "whatever");
}

TEST(Call, UnknownFieldsOfAMessageAreIgnoredUnlessStrict) {
  const std::string echoed = message(
      R"({"role":"assistant","content":"a","reasoning_content":"b"},{"role":"user","content":"c"})");
  Call call, strict;
  const auto error = parse_call(echoed, Endpoint::chat, {}, UnknownFields::ignored, call);
  ASSERT_FALSE(error) << error->message;
  ASSERT_EQ(call.prompts[0].messages.size(), 2U);
  EXPECT_EQ(call.prompts[0].messages[0].content, "a");
  const auto refused = parse_call(echoed, Endpoint::chat, {}, UnknownFields::refused, strict);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->param, "messages[0].reasoning_content");
}

TEST(Call, TextPartsAreJoinedAndDevelopersSpeakAsSystem) {
  Call call;
  const auto error = parse_call(
      message(
          R"({"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})"),
      Endpoint::chat, {}, UnknownFields::ignored, call);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(call.prompts.at(0).messages.at(0).role, "system");
  EXPECT_EQ(call.prompts.at(0).messages.at(0).content, "ab");
}

}  // namespace
}  // namespace switchyard::serve
