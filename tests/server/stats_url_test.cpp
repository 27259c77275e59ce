// SPDX-License-Identifier: Apache-2.0
// `switchyard stats` and `plan` beside a server: the live view says what the server says, a dump is read and planned from.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moe/trace/expert_load.h"
#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

struct Outcome {
  int code = -1;
  std::string out;  ///< with standard error
};

Outcome run(const std::string& arguments, const std::string& before = "") {
  const std::string command = before + SWITCHYARD_PROGRAM + " " + arguments + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  Outcome outcome;
  for (int c; (c = std::fgetc(pipe)) != EOF;) outcome.out += static_cast<char>(c);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

std::string url(const RunningServer& running) {
  return "http://127.0.0.1:" + std::to_string(running.port());
}

void generate(const RunningServer& running) {
  ASSERT_EQ(post(running.port(), "/v1/completions",
                 R"({"prompt":"The kernel provides","max_tokens":12,"ignore_eos":true})")
                .status,
            200);
  demo_engine().wait_idle();
}

Json parsed(const std::string& text) {
  auto json = parse_json(text, "output");
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *std::move(json) : Json(Json::Object{});
}

TEST(StatsUrl, SaysWhatTheServerSays) {
  RunningServer running(&demo_engine());
  generate(running);
  const Outcome outcome = run("stats " + url(running) + " --once --json --interval 0.1");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const Json view = parsed(outcome.out);
  const Json stats = get(running.port(), "/v1/moe/stats").json();
  const auto& shown = view.find("layers")->as_array();
  const auto& layers = stats.find("layers")->as_array();
  ASSERT_EQ(shown.size(), layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    EXPECT_EQ(shown[l].find("picks")->as_double(), layers[l].find("assignments")->as_double());
    EXPECT_NEAR(shown[l].find("imbalance")->as_double(), layers[l].find("imbalance")->as_double(),
                1e-9);
    const auto& load = layers[l].find("load")->as_array();
    const auto& shown_load = shown[l].find("load")->as_array();
    ASSERT_EQ(shown_load.size(), load.size());
    for (size_t e = 0; e < load.size(); ++e)
      EXPECT_EQ(shown_load[e].as_double(), load[e].as_double());
  }
  EXPECT_EQ(view.find("output_tokens_per_second")->as_double(), 0) << "nothing runs";
  EXPECT_EQ(view.find("drop_rate")->as_double(), 0);
  EXPECT_GE(view.find("latencies")->as_array().at(0).find("count")->as_double(), 1);
}

TEST(StatsUrl, WithoutATerminalItIsOnePlainBlock) {
  RunningServer running(&demo_engine());
  generate(running);
  const Outcome outcome = run("stats " + url(running) + " --interval 0.1");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  for (const char* word : {"tokens/s", "imbalance", "first token", "load of experts", "KV cache"})
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
}

TEST(StatsUrl, OnATerminalItRenewsItselfAndLeavesItClean) {
  if (std::system("command -v script > /dev/null") != 0) GTEST_SKIP() << "script is not installed";
  RunningServer running(&demo_engine());
  generate(running);
  const std::string command =
      "stty cols 48 rows 20; timeout -s INT 2 " + std::string(SWITCHYARD_PROGRAM) + " stats " +
      url(running) +
      " --interval 0.2; echo ended $?; sleep 0.3";  // script may lose what it has not read by its child's end
  FILE* const pipe = ::popen(("TERM=xterm script -qec '" + command + "' /dev/null").c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  ::pclose(pipe);
  const size_t begin = out.find("\x1b[?1049h"), end = out.rfind("\x1b[?1049l");
  ASSERT_NE(begin, std::string::npos) << out;
  ASSERT_NE(end, std::string::npos)
      << "the screen is given back: " << out.substr(out.size() - std::min<size_t>(out.size(), 200));
  size_t screens = 0;
  for (size_t at = begin; (at = out.find("\x1b[H", at + 1)) < end;) ++screens;
  EXPECT_GE(screens, 3U);
  EXPECT_NE(out.find("more lines"), std::string::npos) << "what is cut is said";
}

/// The server ends and another takes its address while somebody looks.
TEST(StatsUrl, OnATerminalAMissingAnswerIsShownAndAskedForAgain) {
  if (std::system("command -v script > /dev/null") != 0) GTEST_SKIP() << "script is not installed";
  serve::ServerOptions options;
  options.http.port = RunningServer(&demo_engine()).port();
  // Begun before the servers are: a child would keep their sockets open.
  const std::string command = fmt::format(
      "sleep 1; stty cols 100 rows 40; timeout -s INT 5 {} stats http://127.0.0.1:{} "
      "--interval 0.2; echo ended $?",
      SWITCHYARD_PROGRAM, options.http.port);
  FILE* const pipe = ::popen(("TERM=xterm script -qec '" + command + "' /dev/null").c_str(), "r");
  auto first = std::make_unique<RunningServer>(&demo_engine(), options);
  generate(*first);
  std::string out;
  const auto read_until = [&](const char* words) {
    for (int c; out.find(words) == std::string::npos && (c = std::fgetc(pipe)) != EOF;)
      out += static_cast<char>(c);
    return out.find(words) != std::string::npos;
  };
  EXPECT_TRUE(read_until("last 0 s")) << "two answers: " << out;
  first.reset();
  EXPECT_TRUE(read_until("no answer for")) << out;
  out.clear();
  const RunningServer second(&demo_engine(), options);
  EXPECT_TRUE(read_until("since the server's start")) << "it began anew: nothing is compared";
  EXPECT_TRUE(read_until("ended")) << out;
  ::pclose(pipe);
}

TEST(StatsUrl, FailuresAreNamed) {
  serve::ServerOptions options;
  ASSERT_TRUE(options.keys.add("sesame").ok());
  RunningServer running(&demo_engine(), options);
  const std::string once = " --once --json --interval 0.1";
  const Outcome locked = run("stats " + url(running) + once);
  EXPECT_EQ(locked.code, 2);
  EXPECT_NE(locked.out.find("wants a key"), std::string::npos) << locked.out;
  EXPECT_EQ(run("stats " + url(running) + once + " --api-key sesame").code, 0);
  EXPECT_EQ(run("stats " + url(running) + once, "SWITCHYARD_API_KEY=sesame ").code, 0);
  RunningServer loading(nullptr);
  const Outcome early = run("stats " + url(loading) + once);
  EXPECT_EQ(early.code, 1);
  EXPECT_NE(early.out.find("loading its model"), std::string::npos) << early.out;
  EXPECT_EQ(run("stats http://127.0.0.1:1" + once).code, 1);
  EXPECT_EQ(run("stats https://127.0.0.1:1" + once).code, 2);
}

class Dump : public ::testing::Test {
 protected:
  void SetUp() override {
    serve::ServerOptions options;
    options.routing_record = &demo_record();
    options.model_hash = "crc32c:00000001";
    RunningServer running(&demo_engine(), options);
    ASSERT_EQ(post(running.port(), "/v1/moe/record/start", "{}").status, 200);
    generate(running);
    ASSERT_EQ(post(running.port(), "/v1/moe/record/stop", "{}").status, 200);
    text_ = post(running.port(), "/v1/moe/record/dump", "{}").body;
    path_ = ::testing::TempDir() + "/load-" + std::to_string(::getpid()) + ".json";
    std::ofstream(path_) << text_;
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string path_, text_;
};

TEST_F(Dump, StatsAndPlanReadIt) {
  const Json dump = parsed(text_);
  const Json stats = parsed(run("stats " + path_ + " --json").out);
  EXPECT_EQ(stats.find("tokens")->as_int(), dump.find("tokens")->as_int());
  const auto& layers = stats.find("layers")->as_array();
  ASSERT_EQ(layers.size(), dump.find("counts")->as_array().size());
  for (size_t l = 0; l < layers.size(); ++l)
    EXPECT_EQ(json_text(*layers[l].find("load")), json_text(dump.find("counts")->as_array()[l]));
  EXPECT_NE(run("stats " + path_).out.find("floor"), std::string::npos);
  EXPECT_EQ(run("stats " + path_ + " --plot x.svg").code, 2);
  const Json plan = parsed(run("plan " + path_ + " --ranks 4 --json").out);
  EXPECT_EQ(plan.find("unit")->as_string(), "windows");
  const Json& policy = plan.find("policies")->as_array().at(0);
  EXPECT_EQ(policy.find("placement")->as_array().size(), layers.size());
  EXPECT_GE(policy.find("rank_imbalance")->find("mean")->as_double(), 1);
}

TEST_F(Dump, DamageIsNamed) {
  EXPECT_TRUE(moe::parse_expert_load(text_, "d").ok());
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = text_;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto load = moe::parse_expert_load(text, "d");
    return load.ok() ? std::string("read") : load.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(damaged("\"version\":1", "\"version\":2"), "'version'");
  has(damaged("\"version\":1", "\"version\":\"1\""), "'version'");
  has(damaged("\"top_k\":4", "\"top_k\":33"), "'top_k'");
  has(damaged("\"num_moe_layers\":6", "\"num_moe_layers\":7"), "an array of 7");
  has(damaged("\"num_moe_layers\":6", "\"num_moe_layers\":-1"), "'num_moe_layers'");
  has(damaged("\"num_experts\":32", "\"num_experts\":99999999"), "'num_experts'");
  has(damaged("\"counts\":[[", "\"counts\":[[-1,"), "'counts'");
  has(damaged("\"counts\":[[", "\"counts\":[[1"), "do not sum");
  has(damaged("\"windows\":[", "\"windows\":[],\"other\":["), "'windows'");
  has(damaged("\"dropped\":[0", "\"dropped\":[0.5"), "'dropped'");
  has(damaged("switchyard-expert-load", "switchyard-other-load"), "'format'");
  has(moe::parse_expert_load(text_.substr(0, text_.size() / 2), "d").error().message, "d");
  EXPECT_FALSE(moe::parse_expert_load("[]", "d").ok());
}

}  // namespace
}  // namespace switchyard
