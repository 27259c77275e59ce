// SPDX-License-Identifier: Apache-2.0
// What can be seen of a server: models, tokens, metrics, and the MoE layer at work.
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

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

TEST(Observe, PlacementNamesEveryExpertOnce) {
  RunningServer running(&demo_engine());
  const Json json = get(running.port(), "/v1/moe/placement").json();
  EXPECT_EQ(at(json, "num_ranks").as_int(), 1);
  EXPECT_EQ(at(at(json, "ranks").as_array().at(0), "device").as_string(), "cpu");
  const auto& layers = at(json, "placement").as_array();
  ASSERT_EQ(static_cast<int>(layers.size()), demo_engine().summary().moe_layers);
  for (const Json& layer : layers) {
    const auto& slots = layer.as_array().at(0).as_array();
    ASSERT_EQ(static_cast<int>(slots.size()), demo_engine().summary().experts);
    for (size_t e = 0; e < slots.size(); ++e) EXPECT_EQ(slots[e].as_int(), static_cast<int64_t>(e));
  }
}

TEST(Observe, DashboardLoadsFromThisServerAlone) {
  RunningServer running(nullptr);  // also before the model is loaded
  const Response page = get(running.port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  const std::string policy = page.headers.at("content-security-policy");
  EXPECT_NE(policy.find("default-src 'none'; script-src 'self'"), std::string::npos) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_EQ(page.body.find("://"), std::string::npos) << "nothing from elsewhere";
  for (const char* file : {"style.css", "data.js", "charts.js", "dashboard.js"}) {
    const Response part = get(running.port(), std::string("/dashboard/") + file);
    EXPECT_EQ(part.status, 200) << file;
    std::ifstream source(std::string(SWITCHYARD_SOURCE_DIR) + "/src/serve/dashboard/" + file);
    EXPECT_EQ(part.body, std::string(std::istreambuf_iterator<char>(source), {})) << file;
  }
  EXPECT_EQ(get(running.port(), "/dashboard/../index.html").status, 400);
  EXPECT_EQ(get(running.port(), "/dashboard/none.js").status, 404);
}

/// What metrics of one device the server has, and that all pass the linter.
void check_with_promtool(const std::string& text) {
  if (std::system("command -v promtool > /dev/null") != 0)
    GTEST_SKIP() << "promtool is not installed";
  FILE* const tool = ::popen("promtool check metrics", "w");
  ASSERT_NE(tool, nullptr);
  std::fwrite(text.data(), 1, text.size(), tool);
  EXPECT_EQ(::pclose(tool), 0);
}

TEST(Observe, RefusalsOfTheServerAndTheEngineAreOneFamily) {
  serve::ServerOptions options;
  ASSERT_TRUE(options.keys.add("key").ok());
  options.open_metrics = true;
  options.http.body_bytes = 1000;
  RunningServer running(&demo_engine(), options);
  EXPECT_EQ(get(running.port(), "/v1/models").status, 401);
  EXPECT_EQ(get(running.port(), "/v1/models").status, 401);
  EXPECT_EQ(post(running.port(), "/v1/completions", std::string(2000, ' ')).status, 413);
  const std::string text = get(running.port(), "/metrics").body;
  for (const char* series : {R"(switchyard_requests_rejected_total{reason="unauthorized"} 2)",
                             R"(switchyard_requests_rejected_total{reason="too_large"} 1)",
                             R"(switchyard_requests_rejected_total{reason="queue_tokens"})"})
    EXPECT_NE(text.find(series), std::string::npos) << series;
  const std::string head = "# TYPE switchyard_requests_rejected_total";
  EXPECT_EQ(text.find(head), text.rfind(head));
  check_with_promtool(text);
}

TEST(Observe, TheWholeAnswerIsTimedFromItsRequest) {
  RunningServer running(&demo_engine());
  (void)post(running.port(), "/v1/completions", R"({"prompt":"a","max_tokens":4,"stream":true})");
  const std::string text = get(running.port(), "/metrics").body;
  EXPECT_NE(
      text.find(R"(switchyard_http_request_duration_seconds_count{route="/v1/completions"} 1)"),
      std::string::npos);
}

TEST(Observe, AClientThatLeavesTheQueueIsCountedThere) {
  RunningServer running(&demo_engine());
  Client busy(running.port()), waiting(running.port());  // 16 run at once
  busy.send(
      post_text("/v1/completions",
                R"({"prompt":"a","n":16,"max_tokens":2000,"ignore_eos":true,"stream":true})"));
  ASSERT_TRUE(busy.wait_for("data: "));
  waiting.send(post_text("/v1/completions", R"({"prompt":"b","max_tokens":5})"));
  while (demo_engine().metrics_text().find(R"(requests_waiting{reason="capacity"} 1)") ==
         std::string::npos)
    ::usleep(1000);
  waiting.close();
  const auto counted = [&](const char* stage) {
    return get(running.port(), "/metrics")
               .body.find(std::string("switchyard_client_disconnects_total{stage=\"") + stage +
                          "\"} 1") != std::string::npos;
  };
  for (int i = 0; i < 1000 && !counted("queued"); ++i) ::usleep(5000);
  EXPECT_TRUE(counted("queued"));
  EXPECT_FALSE(counted("prefill"));
  EXPECT_FALSE(counted("decode"));
}

TEST(Observe, VllmNamesOnRequest) {
  serve::ServerOptions options;
  options.served_names = {"org/\"demo\""};
  options.vllm_metrics = true;
  RunningServer running(&demo_engine(), options);
  ASSERT_EQ(post(running.port(), "/v1/completions", R"({"prompt":"a","max_tokens":3})").status,
            200);
  const std::string text = get(running.port(), "/metrics").body;
  const std::string labels = R"({model_name="org/\"demo\"",engine="0")";
  for (const std::string& series :
       {"vllm:num_requests_running" + labels + "} ", "vllm:num_requests_waiting" + labels + "} ",
        "vllm:kv_cache_usage_perc" + labels + "} ", "vllm:prompt_tokens_total" + labels + "} ",
        "vllm:generation_tokens_total" + labels + "} ",
        "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"0.001\"} ",
        "vllm:inter_token_latency_seconds_count" + labels + "} ",
        "vllm:e2e_request_latency_seconds_sum" + labels + "} ",
        "vllm:request_success_total" + labels + ",finished_reason=\"length\"} "})
    EXPECT_NE(text.find("\n" + series), std::string::npos) << series;
  RunningServer plain(&demo_engine());
  EXPECT_EQ(get(plain.port(), "/metrics").body.find("vllm:"), std::string::npos);
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
  check_with_promtool(response.body);
}

TEST(Observe, ReadyIsWhatTheServerIs) {
  const auto ready = [](uint16_t port) {
    const std::string text = get(port, "/metrics").body, name = "\nswitchyard_engine_ready ";
    const size_t at = text.find(name);
    return at == std::string::npos ? "missing" : text.substr(at + name.size(), 1);
  };
  RunningServer running(nullptr);
  EXPECT_EQ(ready(running.port()), "0") << "loading";
  running.server->serve(demo_engine());
  EXPECT_EQ(ready(running.port()), "1");
  running.server->drain();
  EXPECT_EQ(ready(running.port()), "0") << "draining";
  RunningServer other(&demo_engine());
  other.server->fail_engine("a test");
  EXPECT_EQ(ready(other.port()), "0") << "dead";
}

TEST(Observe, WhatCanHappenIsThereBeforeItHappens) {
  RunningServer running(nullptr);
  const std::string text = get(running.port(), "/metrics").body;
  for (const char* series :
       {R"(switchyard_requests_rejected_total{reason="rate_limited"} 0)",
        R"(switchyard_client_disconnects_total{stage="prefill"} 0)",
        R"(switchyard_http_requests_total{route="/v1/completions",method="POST",code="500"} 0)",
        "process_start_time_seconds 1"})
    EXPECT_NE(text.find(series), std::string::npos) << series << text;
}

TEST(Observe, StatsSayWhenTheServerBeganAndEachLayersSteps) {
  RunningServer running(&demo_engine());
  (void)post(running.port(), "/v1/completions", R"({"prompt":"a","max_tokens":2})");
  demo_engine().wait_idle();
  const Json stats = get(running.port(), "/v1/moe/stats").json();
  EXPECT_NEAR(stats.find("start_time")->as_double(), static_cast<double>(std::time(nullptr)), 60);
  for (const Json& layer : stats.find("layers")->as_array())
    EXPECT_EQ(layer.find("steps")->as_int(), stats.find("steps")->as_int()) << "at rest";
}

}  // namespace
}  // namespace switchyard
