// SPDX-License-Identifier: Apache-2.0
// The load client before our own server: what it counts is what the server gave.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "client/fetch.h"
#include "client/load.h"
#include "client/summary.h"
#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

client::Target target_of(const RunningServer& running) {
  return *client::parse_target(fmt::format("http://127.0.0.1:{}", running.port()));
}

client::Workload demo_workload() {
  client::Workload workload;
  workload.model = "demo";
  workload.vocab = demo_engine().summary().vocab;
  workload.input_tokens = {4, 12};
  workload.output_tokens = {3, 9};
  workload.ignore_eos = true;
  return workload;
}

TEST(BenchServe, TokensAreThoseThatTheEngineCounted) {
  RunningServer running(&demo_engine());
  const EngineStats before = demo_engine().stats();
  const auto record = client::play(target_of(running), demo_workload(), "",
                                   {.concurrency = 4, .num_requests = 12, .timeout_s = 60});
  ASSERT_TRUE(record.ok());
  const client::Summary summary = client::summarize(*record, {});
  const EngineStats after = demo_engine().stats();
  EXPECT_EQ(summary.answered, 12);
  EXPECT_EQ(summary.without_usage, 0);
  EXPECT_EQ(summary.output_tokens,
            static_cast<int64_t>(after.output_tokens - before.output_tokens));
  EXPECT_EQ(summary.input_tokens, static_cast<int64_t>(after.prompt_tokens - before.prompt_tokens));
  EXPECT_EQ(summary.peak_concurrency, 4);
  EXPECT_EQ(summary.ttft_s.count, 12 - summary.without_text);
  EXPECT_GT(summary.e2e_s.median, summary.ttft_s.median);
}

TEST(BenchServe, ThoseWhoLeaveAreCancelledInTheEngine) {
  RunningServer running(&demo_engine());
  client::Workload workload = demo_workload();
  workload.cancel_rate = 1;
  workload.output_tokens = {400, 400};
  const auto record = client::play(target_of(running), workload, "",
                                   {.concurrency = 8, .num_requests = 8, .timeout_s = 60});
  ASSERT_TRUE(record.ok());
  const client::Summary summary = client::summarize(*record, {});
  EXPECT_EQ(summary.cancelled + summary.answered, 8);
  EXPECT_GT(summary.cancelled, 0);
  EXPECT_TRUE(running.server->wait_drained(20));
}

TEST(BenchServe, ABurstOfTenTimesTheRoomIsTurnedAwayAndNothingIsLost) {
  serve::ServerOptions options;
  options.max_choices = 4;
  options.max_running = 2;
  RunningServer running(&demo_engine(), options);
  client::Workload workload = demo_workload();
  workload.output_tokens = {40, 40};
  const auto record = client::play(target_of(running), workload, "",
                                   {.concurrency = 40, .num_requests = 40, .timeout_s = 60});
  ASSERT_TRUE(record.ok());
  const client::Summary summary = client::summarize(*record, {});
  EXPECT_EQ(summary.answered + summary.turned_away, 40);
  EXPECT_GE(summary.answered, 4);
  EXPECT_GT(summary.turned_away, 0);
  EXPECT_EQ(summary.failed, 0);
  for (const client::Outcome& outcome : record->outcomes)
    if (outcome.end == client::Outcome::End::turned_away) {
      EXPECT_EQ(outcome.failure, "http 429 queue_full");
      EXPECT_GE(outcome.retry_after_s, 1);
    }
}

TEST(BenchServe, AGetIsWhole) {
  RunningServer running(&demo_engine());
  const auto page = client::fetch(target_of(running), "/v1/models", "");
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->status, 200);
  EXPECT_NE(page->body.find("\"vocab\""), std::string::npos);
}

/// The program against a server of this process.
Outcome run_bench(const RunningServer& running, std::vector<std::string> options) {
  std::vector<std::string> arguments{"bench", "serve",
                                     fmt::format("http://127.0.0.1:{}/v1", running.port())};
  options.insert(options.end(), {"--input-tokens", "4:8", "--output-tokens", "6", "--ignore-eos"});
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_program(arguments);
}

TEST(BenchServe, TheBlockHasTheLinesThatScriptsRead) {
  RunningServer running(&demo_engine());
  const Outcome outcome = run_bench(running, {"-n", "5", "--slo", "e2e:1000000"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* const line :
       {"============ Serving Benchmark Result ============\n",
        "Successful requests:                     5         \n",
        "Failed requests:                         0         \n",
        "Maximum request concurrency:             1         \n",
        "Total generated tokens:                  30        \n", "Request throughput (req/s): ",
        "Request goodput (req/s): ", "Output token throughput (tok/s): ",
        "Peak output token throughput (tok/s): ", "Total Token throughput (tok/s): ",
        "---------------Time to First Token----------------\nMean TTFT (ms): ",
        "-----Time per Output Token (excl. 1st token)------\nMean TPOT (ms): ",
        "---------------Inter-token Latency----------------\nMean ITL (ms): ", "P99 ITL (ms): ",
        "----------------End-to-end Latency----------------\nMean E2EL (ms): "})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << " in\n" << outcome.out;
}

TEST(BenchServe, ARowOfJsonForEachPointOfASweep) {
  RunningServer running(&demo_engine());
  const Outcome outcome = run_bench(running, {"-c", "1,3", "-n", "6", "-o", "jsonl"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const size_t end = outcome.out.find('\n');
  ASSERT_NE(end, std::string::npos) << outcome.out;
  int64_t clients = 1;
  for (const std::string& line : {outcome.out.substr(0, end), outcome.out.substr(end + 1)}) {
    const auto row = parse_json(line, "row");
    ASSERT_TRUE(row.ok()) << line;
    EXPECT_EQ(row->find("concurrency")->as_int(), clients);
    EXPECT_EQ(row->find("answered")->as_int(), 6);
    EXPECT_EQ(row->find("total_output_tokens")->as_int(), 36);
    EXPECT_EQ(row->find("model")->as_string(), "demo");
    EXPECT_GT(row->find("ttft_ms")->find("p99")->as_double(), 0);
    clients = 3;
  }
}

TEST(BenchServe, FailuresAreSaidAndFailTheProgram) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const Outcome late = run_bench(
      running, {"-n", "2", "-c", "2", "--warmup", "0", "--vocab", "9", "--timeout", "0.2"});
  EXPECT_EQ(late.code, 1);
  EXPECT_NE(late.err.find("2 x timeout"), std::string::npos) << late.err;
  EXPECT_NE(late.out.find("timeout:                                 2"), std::string::npos)
      << late.out;
  const Outcome warm = run_bench(running, {"--vocab", "9", "--timeout", "0.2"});
  EXPECT_EQ(warm.code, 1);
  EXPECT_NE(warm.err.find("warm-up"), std::string::npos) << warm.err;
}

TEST(BenchServe, WrongOptionsAreRefused) {
  const auto refused = [](const std::vector<std::string>& options, const char* why) {
    std::vector<std::string> arguments{"bench", "serve", "http://127.0.0.1:1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run_program(arguments);
    EXPECT_NE(outcome.code, 0) << why;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused({"--slo", "speed:1"}, "none of ttft, tpot, itl and e2e");
  refused({"--input-tokens", "9:3"}, "--input-tokens: expected a number of tokens");
  refused({"--endpoint", "chat"}, "--prompts");
  refused({"--request-rate", "2", "-c", "1,2", "--model", "m", "--vocab", "9"},
          "sweep one of them");
  refused({}, "is the server there?");
}

}  // namespace
}  // namespace switchyard
