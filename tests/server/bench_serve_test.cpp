// SPDX-License-Identifier: Apache-2.0
// The load client before our own server: what it counts is what the server gave.
#include <fmt/format.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace switchyard
