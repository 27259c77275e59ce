// SPDX-License-Identifier: Apache-2.0
// What can be seen of a server: models, tokens, metrics, and the MoE layer at work.
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

const Json& at(const Json& json, const char* name) {
  static const Json kNull;
  const Json* found = json.find(name);
  EXPECT_NE(found, nullptr) << name << " in " << json_text(json);
  return found == nullptr ? kNull : *found;
}

TEST(Observe, ModelsAreListedAndUnknownOnesNamed) {
  serve::ServerOptions options;
  options.served_names = {"demo", "org/demo"};
  RunningServer running(&demo_engine(), options);
  for (const char* path : {"/v1/models", "/models"}) {
    const Json json = get(running.port(), path).json();
    EXPECT_EQ(at(json, "object").as_string(), "list");
    const Json& model = at(json, "data").as_array().at(0);
    EXPECT_EQ(at(model, "id").as_string(), "demo");
    EXPECT_EQ(at(model, "max_model_len").as_int(), 2048);
    EXPECT_EQ(at(at(model, "meta"), "experts").as_int(), 32);
  }
  EXPECT_EQ(at(get(running.port(), "/v1/models/org%2Fdemo").json(), "id").as_string(), "org/demo");
  const Response unknown = get(running.port(), "/v1/models/gpt");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error_code(), "model_not_found");
  const Response asked = post(running.port(), "/v1/completions", R"({"prompt":"a","model":"gpt"})");
  EXPECT_EQ(asked.status, 404);
  EXPECT_NE(asked.body.find("org/demo"), std::string::npos) << asked.body;
}

TEST(Observe, TokensThereAndBack) {
  RunningServer running(&demo_engine());
  const Json json = post(running.port(), "/tokenize", R"({"prompt":"Über den Fluß 😀"})").json();
  const Json::Array& tokens = at(json, "tokens").as_array();
  EXPECT_EQ(at(json, "count").as_int(), static_cast<int64_t>(tokens.size()));
  std::string ids;
  for (const Json& token : tokens) ids += (ids.empty() ? "" : ",") + std::to_string(token.as_int());
  const Json back = post(running.port(), "/detokenize", R"({"tokens":[)" + ids + "]}").json();
  EXPECT_EQ(at(back, "prompt").as_string(), "Über den Fluß 😀");
  EXPECT_EQ(at(back, "content").as_string(), "Über den Fluß 😀");
  const Json chat =
      post(running.port(), "/tokenize", R"({"messages":[{"role":"user","content":"hello"}]})")
          .json();
  EXPECT_GT(at(chat, "count").as_int(), 5);
  EXPECT_EQ(post(running.port(), "/tokenize", "{}").error_code(), "missing_field");
  EXPECT_EQ(post(running.port(), "/detokenize", "{}").error_code(), "missing_field");
  const Response outside = post(running.port(), "/detokenize", R"({"tokens":[99999999]})");
  EXPECT_EQ(outside.status, 400);
  EXPECT_EQ(outside.error_param(), "tokens");
}

TEST(Observe, TokensAreOfOneInputOfTheServedModel) {
  serve::ServerOptions options;
  options.unknown_fields = serve::UnknownFields::refused;
  ScriptedEngine engine;
  RunningServer running(&engine, options);
  const auto refused = [&](const char* path, const char* body) {
    const Response response = post(running.port(), path, body);
    return response.error_code() + " " + response.error_param();
  };
  EXPECT_EQ(post(running.port(), "/tokenize", R"({"content":"a","model":"demo"})").status, 200);
  EXPECT_EQ(post(running.port(), "/detokenize", R"({"tokens":[97],"model":"demo"})").status, 200);
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"a","model":"gpt"})"), "model_not_found model");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[97],"model":"gpt"})"), "model_not_found model");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"a","add_special_tokens":false})"),
            "unsupported_parameter add_special_tokens");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"a","promt":"b"})"), "unsupported_parameter promt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"a","messages":[{"role":"user","content":"b"}]})"),
            "invalid_value prompt");
}

TEST(Observe, MoeStatsCountEveryPick) {
  demo_engine().wait_idle();
  demo_engine().reset_stats();
  RunningServer running(&demo_engine());
  ASSERT_EQ(
      post(
          running.port(), "/v1/completions",
          R"({"prompt":"The kernel provides","max_tokens":8,"ignore_eos":true,"cache_prompt":false})")
          .status,
      200);
  const Json json = get(running.port(), "/v1/moe/stats").json();
  EXPECT_EQ(at(json, "output_tokens").as_int(), 8);
  const int64_t routed = at(json, "prompt_tokens").as_int() + 7;  // the last token is not fed back
  int64_t assignments = 0;
  for (const Json& layer : at(json, "layers").as_array()) {
    int64_t picks = 0;
    for (const Json& expert : at(layer, "load").as_array()) picks += expert.as_int();
    EXPECT_EQ(picks, at(layer, "assignments").as_int());
    EXPECT_EQ(picks, routed * 4);
    EXPECT_GE(at(layer, "imbalance").as_double(), 1);
    EXPECT_GE(at(layer, "experts_touched").as_double(), 4);
    assignments += picks;
  }
  EXPECT_EQ(at(json, "assignments").as_int(), assignments);
  EXPECT_EQ(at(json, "dropped").as_int(), 0);
}

TEST(Observe, MetricsAreOneValidText) {
  RunningServer running(&demo_engine());
  (void)post(running.port(), "/v1/completions", R"({"prompt":"a","max_tokens":2})");
  (void)get(running.port(), "/secret-path");
  const Response response = get(running.port(), "/metrics");
  EXPECT_EQ(response.headers.at("content-type"), "text/plain; version=0.0.4");
  for (const char* series :
       {R"(switchyard_http_requests_total{route="/v1/completions",method="POST",code="200"} 1)",
        R"(switchyard_http_requests_total{route="unmatched",method="GET",code="404"} 1)",
        R"(switchyard_http_connections{state="active"} 1)", "switchyard_generation_tokens_total",
        "switchyard_engine_ready 1"})
    EXPECT_NE(response.body.find(series), std::string::npos) << series;
  EXPECT_EQ(response.body.find("secret"), std::string::npos) << "a client's text became a label";
  if (std::system("command -v promtool > /dev/null") != 0)
    GTEST_SKIP() << "promtool is not installed";
  FILE* const tool = ::popen("promtool check metrics", "w");
  ASSERT_NE(tool, nullptr);
  std::fwrite(response.body.data(), 1, response.body.size(), tool);
  EXPECT_EQ(::pclose(tool), 0);
}

}  // namespace
}  // namespace switchyard
