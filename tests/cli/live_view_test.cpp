// SPDX-License-Identifier: Apache-2.0
// The live view between two answers: differences of sums, means of steps taken apart again, and text that fits its terminal.
#include "cli/live_view.h"

#include <cmath>

#include <gtest/gtest.h>

namespace switchyard::cli {
namespace {

constexpr const char* kMetrics =
    "# HELP switchyard_generation_tokens_total t\n# TYPE switchyard_generation_tokens_total "
    "counter\n"
    "switchyard_generation_tokens_total {}\n"
    "# HELP switchyard_time_to_first_token_seconds t\n"
    "# TYPE switchyard_time_to_first_token_seconds histogram\n"
    "switchyard_time_to_first_token_seconds_bucket{{le=\"0.1\"}} {}\n"
    "switchyard_time_to_first_token_seconds_bucket{{le=\"+Inf\"}} {}\n"
    "switchyard_time_to_first_token_seconds_sum 1\nswitchyard_time_to_first_token_seconds_count "
    "{}\n";

/// Ten steps of the layer with imbalance 2; in the second answer ten more with imbalance 3, to other experts, one pick in ten
/// dropped. Steps of the engine are others: a step that runs is in its layers already, one without picks never is.
LiveSnapshot snapshot(double time_s, bool later) {
  const std::string metrics =
      later ? fmt::format(kMetrics, 500, 9, 9, 9) : fmt::format(kMetrics, 100, 5, 5, 5);
  const std::string stats = fmt::format(
      R"({{"object":"moe.stats","moe_layers":1,"experts":4,"top_k":1,"steps":{},"step_seconds":{},)"
      R"("layers":[{{"moe_layer":0,"assignments":{},"dropped":{},"steps":{},"imbalance":{},"experts_touched":2,"load":{}}}],)"
      R"("phases":[{{"name":"router","seconds":{}}},{{"name":"gemm_up","seconds":{}}}]}})",
      later ? 25 : 9, later ? 3 : 1, later ? 200 : 100, later ? 10 : 0, later ? 20 : 10,
      later ? 2.5 : 2.0, later ? "[50,125,25,0]" : "[50,50,0,0]", later ? 0.3 : 0.1,
      later ? 2.1 : 0.5);
  auto read = read_snapshot(metrics, stats, time_s);
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message);
  return read.ok() ? *std::move(read) : LiveSnapshot();
}

TEST(LiveView, BetweenTwoAnswersAreDifferences) {
  const LiveSnapshot before = snapshot(100, false), now = snapshot(104, true);
  const LiveView view = make_live_view(now, &before, &before);
  EXPECT_DOUBLE_EQ(view.output_per_s, 100);
  ASSERT_EQ(view.layers.size(), 1U);
  EXPECT_EQ(view.layers[0].load, (std::vector<double>{0, 75, 25, 0}));
  EXPECT_DOUBLE_EQ(view.layers[0].imbalance, 3);
  EXPECT_DOUBLE_EQ(view.layers[0].touched, 2);
  EXPECT_DOUBLE_EQ(view.drop_rate(), 0.1);
  ASSERT_EQ(view.phases.size(), 3U);
  EXPECT_EQ(view.phases[0].first, "gemm_up");
  EXPECT_NEAR(view.phases[0].second, 1.6, 1e-12);
  EXPECT_NEAR(view.phases[1].second, 0.2, 1e-12);
  EXPECT_EQ(view.phases[2].first, "other");
  EXPECT_NEAR(view.phases[2].second, 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(view.latencies[0].count, 4);
  EXPECT_DOUBLE_EQ(view.latencies[0].p50, 0.05);
}

TEST(LiveView, WithoutAStepOfItsOwnALayerHasNoImbalance) {
  const LiveSnapshot before = snapshot(100, true), now = snapshot(104, true);
  const LiveView view = make_live_view(now, &before, &before);
  EXPECT_TRUE(std::isnan(view.layers[0].imbalance));
  EXPECT_TRUE(std::isnan(view.worst_imbalance()));
  const std::string text = live_view_text(view, "url", {true, 80}, 0);
  EXPECT_NE(text.find("- mean, - worst layer"), std::string::npos) << text;
}

TEST(LiveView, AnotherServerBehindTheSameAddressIsNoContinuation) {
  const auto answer = [](const char* text) {
    auto read = read_snapshot("", text, 0);
    EXPECT_TRUE(read.ok());
    return *std::move(read);
  };
  const LiveSnapshot early = answer(R"({"object":"moe.stats","start_time":1.5,"steps":10})");
  EXPECT_TRUE(answer(R"({"object":"moe.stats","start_time":1.5,"steps":10})").continues(early));
  EXPECT_FALSE(answer(R"({"object":"moe.stats","start_time":1.5,"steps":9})").continues(early));
  EXPECT_FALSE(answer(R"({"object":"moe.stats","start_time":7.5,"steps":99})").continues(early))
      << "it has passed the old count";
}

TEST(LiveView, SinceTheStartIsTheAnswerItself) {
  const LiveSnapshot now = snapshot(104, true);
  const LiveView view = make_live_view(now, nullptr, nullptr);
  EXPECT_TRUE(std::isnan(view.output_per_s)) << "one answer has no rate";
  EXPECT_DOUBLE_EQ(view.mean_imbalance(), 2.5);
  EXPECT_EQ(view.layers[0].load[1], 125);
}

TEST(LiveView, FitsItsTerminal) {
  LiveSnapshot now = snapshot(104, true);
  for (const int columns : {40, 60, 120}) {
    const std::string text = live_view_text(make_live_view(now, nullptr, nullptr),
                                            "http://127.0.0.1:8000", {true, columns}, 0);
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      std::string line = text.substr(begin, end - begin);
      for (size_t at; (at = line.find('\x1b')) != std::string::npos;)
        line.erase(at, line.find('m', at) - at + 1);
      EXPECT_LE(display_width(line), columns) << line;
    }
  }
}

TEST(LiveView, OtherServersAreNamed) {
  EXPECT_FALSE(read_snapshot("", "{}", 0).ok());
  EXPECT_FALSE(read_snapshot("", R"({"object":"list"})", 0).ok());
  EXPECT_FALSE(read_snapshot("<html>", R"({"object":"moe.stats"})", 0).ok());
  EXPECT_FALSE(read_snapshot("", R"({"object":"moe.stats","layers":[{"load":["a"]}]})", 0).ok());
  const auto empty = read_snapshot("", R"({"object":"moe.stats"})", 0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(make_live_view(*empty, nullptr, nullptr).drop_rate(), 0) << "no layers, no division";
}

}  // namespace
}  // namespace switchyard::cli
