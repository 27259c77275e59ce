// SPDX-License-Identifier: Apache-2.0
// The recorder of routings: counts equal the engine's own, windows are bounded and sum up, states refuse what they must.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

using serve::RoutingRecord;

/// [L][E] of a dump or of a window.
std::vector<std::vector<uint64_t>> counts_of(const Json& json) {
  std::vector<std::vector<uint64_t>> counts;
  for (const Json& layer : json.find("counts")->as_array()) {
    auto& row = counts.emplace_back();
    for (const Json& picks : layer.as_array()) row.push_back(static_cast<uint64_t>(picks.as_int()));
  }
  return counts;
}

Response record(uint16_t port, const char* what, const char* body = "{}") {
  return post(port, std::string("/v1/moe/record/") + what, body);
}

serve::ServerOptions recording_options() {
  serve::ServerOptions options;
  options.routing_record = &demo_record();
  options.model_hash = "crc32c:12345678";
  return options;
}

TEST(MoeRecord, CountsWhatTheEngineCounts) {
  RunningServer running(&demo_engine(), recording_options());
  const uint16_t port = running.port();
  demo_engine().wait_idle();
  const EngineStats before = demo_engine().stats();
  ASSERT_EQ(record(port, "start").status, 200);
  ASSERT_EQ(post(port, "/v1/completions",
                 R"({"prompt":"The kernel provides","max_tokens":9,"ignore_eos":true})")
                .status,
            200);
  demo_engine().wait_idle();
  const EngineStats after = demo_engine().stats();
  ASSERT_EQ(record(port, "stop").status, 200);
  ASSERT_EQ(post(port, "/v1/completions", R"({"prompt":"not recorded","max_tokens":3})").status,
            200);
  const Response response = record(port, "dump");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json dump = response.json();
  EXPECT_EQ(dump.find("format")->as_string(), "switchyard-expert-load");
  EXPECT_EQ(dump.find("model")->as_string(), "demo");
  EXPECT_EQ(dump.find("model_hash")->as_string(), "crc32c:12345678");
  EXPECT_EQ(dump.find("top_k")->as_int(), 4);
  EXPECT_EQ(dump.find("stage")->as_string(), "all");
  EXPECT_EQ(dump.find("steps")->as_int(), static_cast<int64_t>(after.steps - before.steps));
  const auto counts = counts_of(dump);
  ASSERT_EQ(counts.size(), after.load.size());
  for (size_t l = 0; l < counts.size(); ++l)
    for (size_t e = 0; e < counts[l].size(); ++e)
      EXPECT_EQ(counts[l][e], after.load[l][e] - before.load[l][e]) << l << " " << e;
}

TEST(MoeRecord, AStageIsCountedAlone) {
  RunningServer running(&demo_engine(), recording_options());
  demo_engine().wait_idle();
  ASSERT_EQ(record(running.port(), "start", R"({"stage":"decode"})").status, 200);
  ASSERT_EQ(post(running.port(), "/v1/completions",
                 R"({"prompt":"The kernel provides","max_tokens":6,"ignore_eos":true})")
                .status,
            200);
  demo_engine().wait_idle();
  ASSERT_EQ(record(running.port(), "stop").status, 200);
  const Json dump = record(running.port(), "dump").json();
  EXPECT_EQ(dump.find("stage")->as_string(), "decode");
  EXPECT_EQ(dump.find("tokens")->as_int(), 5) << "six come, five are fed back";
}

TEST(MoeRecord, StatesRefuseWhatTheyMust) {
  RunningServer running(&demo_engine(), recording_options());
  const uint16_t port = running.port();
  EXPECT_EQ(record(port, "stop").status, 409);
  EXPECT_EQ(record(port, "start", R"({"stage":"all the time"})").error_param(), "stage");
  EXPECT_EQ(record(port, "start", R"([1])").status, 400);
  ASSERT_EQ(record(port, "start").status, 200);
  const Response second = record(port, "start");
  EXPECT_EQ(second.status, 409);
  EXPECT_EQ(second.error_code(), "already_recording");
  EXPECT_EQ(record(port, "dump").status, 200) << "also while it goes on";
  EXPECT_EQ(record(port, "stop").status, 200);
  EXPECT_EQ(record(port, "stop").error_code(), "not_recording");
  EXPECT_EQ(get(port, "/v1/moe/record/start").status, 405);
}

TEST(MoeRecord, WithoutARecorderItSaysSo) {
  RunningServer running(&demo_engine());
  EXPECT_EQ(record(running.port(), "start").status, 400);
  RoutingRecord fresh;
  serve::ServerOptions options;
  options.routing_record = &fresh;
  RunningServer other(&demo_engine(), options);
  EXPECT_EQ(record(other.port(), "dump").error_code(), "nothing_recorded");
}

TEST(MoeRecord, NeedsTheKey) {
  serve::ServerOptions options = recording_options();
  ASSERT_TRUE(options.keys.add("secret").ok());
  RunningServer running(&demo_engine(), options);
  for (const char* what : {"start", "stop", "dump"})
    EXPECT_EQ(record(running.port(), what).status, 401) << what;
  EXPECT_EQ(get(running.port(), "/v1/moe/placement").status, 401);
  EXPECT_EQ(get(running.port(), "/").status, 200) << "a page without data";
}

/// One layer of two experts; a step of one token, to the expert that is given.
void push_step(RoutingRecord& to, int expert) {
  const int32_t demand[2] = {expert == 0, expert == 1};
  const RoutedLayer layers[] = {{demand, 0, {}, {}}};
  to.push({StepStage::decode, 1, {}, layers});
}

TEST(MoeRecord, WindowsAreBoundedAndSumUp) {
  RoutingRecord record;
  ASSERT_TRUE(record.start("all", 1, 2));
  constexpr int kSteps = 10'000;
  for (int i = 0; i < kSteps; ++i) push_step(record, i < 7000 ? 0 : 1);
  ModelSummary summary;
  summary.moe_layers = 1;
  summary.experts = 2;
  summary.top_k = 1;
  const auto parsed = parse_json(record.dump(summary, "m", "h"), "dump");
  ASSERT_TRUE(parsed.ok());
  const auto& windows = parsed->find("windows")->as_array();
  EXPECT_LE(windows.size(), RoutingRecord::kMostWindows);
  EXPECT_GT(windows.size(), RoutingRecord::kMostWindows / 2);
  EXPECT_EQ(counts_of(*parsed), (std::vector<std::vector<uint64_t>>{{7000, 3000}}));
  uint64_t steps = 0, first = 0;
  for (const Json& window : windows) {
    steps += static_cast<uint64_t>(window.find("steps")->as_int());
    first += counts_of(window)[0][0];
  }
  EXPECT_EQ(steps, uint64_t{kSteps});
  EXPECT_EQ(first, 7000U);
  EXPECT_EQ(counts_of(windows.front())[0][1], 0U) << "in order: the first windows saw expert 0";
  EXPECT_EQ(counts_of(windows.back())[0][0], 0U);
  EXPECT_TRUE(record.stop());
  push_step(record, 0);
  EXPECT_EQ(record.state().steps, kSteps) << "after the end nothing counts";
}

TEST(MoeRecord, DumpsBesideRunningStepsAreWhole) {
  RoutingRecord record;
  ASSERT_TRUE(record.start("all", 1, 2));
  ModelSummary summary;
  summary.moe_layers = 1;
  summary.experts = 2;
  std::atomic<bool> over{false};
  std::thread loop([&] {
    for (int i = 0; !over; ++i) push_step(record, i % 2);
  });
  for (int i = 0; i < 200; ++i) {
    const auto parsed = parse_json(record.dump(summary, "m", "h"), "dump");
    ASSERT_TRUE(parsed.ok());
    const auto steps = static_cast<uint64_t>(parsed->find("steps")->as_int());
    const auto counts = counts_of(*parsed);
    EXPECT_EQ(counts[0][0] + counts[0][1], steps);
    uint64_t of_windows = 0;
    for (const Json& window : parsed->find("windows")->as_array()) {
      const auto of_window = counts_of(window);
      EXPECT_EQ(of_window[0][0] + of_window[0][1],
                static_cast<uint64_t>(window.find("steps")->as_int()));
      of_windows += of_window[0][0] + of_window[0][1];
    }
    EXPECT_EQ(of_windows, steps);
    if (i % 50 == 49) {
      EXPECT_TRUE(record.stop());
      EXPECT_TRUE(record.start("all", 1, 2));
    }
  }
  over = true;
  loop.join();
}

TEST(MoeRecord, StepsOfOtherSizesAreNotCounted) {
  RoutingRecord record;
  ASSERT_TRUE(record.start("all", 2, 2));
  push_step(record, 0);
  EXPECT_EQ(record.state().steps, 0);
}

}  // namespace
}  // namespace switchyard
