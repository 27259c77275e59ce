// SPDX-License-Identifier: Apache-2.0
// Bodies that are refused, each with its code and the field that is to blame; and those that are not.
#include "serve/call.h"

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
    {"role", message(R"({"role":"tool","content":"a"})"), "invalid_value", "messages[0].role"},
    {"null content", message(R"({"role":"user","content":null})"), "missing_field",
     "messages[0].content"},
    {"content number", message(R"({"role":"user","content":1})"), "invalid_value",
     "messages[0].content"},
    {"image",
     message(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///"}}]})"),
     "unsupported_parameter", "messages[0].content"},
    {"tool calls", message(R"({"role":"assistant","content":"a","tool_calls":[{}]})"),
     "unsupported_parameter", "messages[0].tool_calls"},
    {"NUL", message(R"({"role":"user","content":"a\u0000b"})"), "invalid_value",
     "messages[0].content"},
    {"tools", chat(R"("tools":[{"type":"function"}])"), "unsupported_parameter", "tools"},
    {"response_format", chat(R"("response_format":{"type":"xml"})"), "invalid_value",
     "response_format"},
    {"response_format no object", chat(R"("response_format":1)"), "invalid_value",
     "response_format"},
    {"no schema", chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})"),
     "missing_field", "response_format.json_schema.schema"},
    {"logprobs", chat(R"("logprobs":true)"), "unsupported_parameter", "logprobs"},
    {"logit_bias", chat(R"("logit_bias":{"1":2})"), "unsupported_parameter", "logit_bias"},
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
