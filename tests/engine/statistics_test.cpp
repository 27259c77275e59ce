// SPDX-License-Identifier: Apache-2.0
// Statistics of routings with drops, and the one warning about a capacity that drops too much.
#include "engine/statistics.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"

namespace switchyard::engine {
namespace {

/// A step of four tokens, one pick each, all for expert 0 of 4.
struct HotStep {
  std::vector<int32_t> expert{0, 0, 0, 0}, demand{4, 0, 0, 0}, load{4, 0, 0, 0};
  std::vector<float> weight{1, 1, 1, 1};
  RouteCounts counts;

  /// The last `count` picks are dropped.
  void drop(int count) {
    for (int i = 0; i < count; ++i) expert[static_cast<size_t>(3 - i)] = -1;
    load[0] = 4 - count;
    counts.dropped = counts.unrouted_tokens = count;
  }
  Routing routing() const {
    return {TensorView::of(expert.data(), {4, 1}), TensorView::of(weight.data(), {4, 1}),
            TensorView::of(load.data(), {4}), TensorView::of(demand.data(), {4}), counts};
  }
};

void play(Statistics& statistics, const HotStep& step, PickCounts& picks, int steps) {
  const std::vector<int32_t> offset{0, 4};
  const std::vector<int32_t> skip{0};
  std::vector<PickCounts*> rows{&picks};
  for (int i = 0; i < steps; ++i) {
    statistics.begin_step(offset, rows, skip);
    statistics.on_routing(0, step.routing());
    statistics.end_step(0.001);
  }
}

TEST(Statistics, CountsDemandAndWhatBecameOfIt) {
  Statistics statistics({4}, 3);
  HotStep step;
  step.drop(1);
  step.counts.unusable_rows = 2;
  PickCounts picks(4);
  play(statistics, step, picks, 3);
  const EngineStats stats = statistics.read();
  EXPECT_EQ(stats.load[0], (std::vector<uint64_t>{12, 0, 0, 0}));
  EXPECT_EQ(stats.dropped, (std::vector<uint64_t>{3}));
  EXPECT_EQ(stats.unrouted_tokens, 3u);
  EXPECT_EQ(stats.unusable_rows, 6u);
  EXPECT_DOUBLE_EQ(stats.imbalance[0], 4);  // of the demand; of what was placed it would be 4 too,
  EXPECT_EQ(picks, (PickCounts{9, 0, 0, 0}));  // but with three quarters of the picks
  EXPECT_EQ(statistics.layer_picks(0), 12u);
  EXPECT_EQ(statistics.layer_dropped(0), 3u);
  EXPECT_EQ(statistics.layer_unrouted(0), 3u);
  statistics.reset();
  EXPECT_EQ(statistics.read().dropped, (std::vector<uint64_t>{0}));
  EXPECT_EQ(statistics.read().unusable_rows, 0u);
}

TEST(Statistics, ImbalanceIsOfTheDemand) {
  Statistics statistics({4}, 1);
  HotStep step;
  step.expert = {0, 0, -1, 1};
  step.demand = {3, 1, 0, 0};
  step.load = {2, 1, 0, 0};
  step.counts.dropped = 1;
  PickCounts picks(4);
  play(statistics, step, picks, 2);
  EXPECT_DOUBLE_EQ(statistics.read().imbalance[0], 3);
}

TEST(Statistics, DroplessHasNoDropsToShow) {
  Statistics statistics({4});
  PickCounts picks(4);
  play(statistics, HotStep(), picks, 1);
  EXPECT_TRUE(statistics.read().dropped.empty());
}

/// Collects warnings while it lives.
struct Warnings {
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view text) { texts.emplace_back(text); },
                 LogLevel::warning);
  }
  ~Warnings() { set_log_sink({}); }
  std::vector<std::string> texts;
};

TEST(DropWatch, WarnsOnceAWindowHasEndedBadly) {
  const Warnings warnings;
  Statistics statistics({4}, 3);
  HotStep step;
  step.drop(1);
  PickCounts picks(4);
  play(statistics, step, picks, DropWatch::kWindowSteps - 1);
  EXPECT_TRUE(warnings.texts.empty());
  play(statistics, step, picks, 10 * DropWatch::kWindowSteps);
  ASSERT_EQ(warnings.texts.size(), 1u);
  // 4 times the even share of one pick hold all four.
  EXPECT_NE(warnings.texts[0].find("capacity_factor 3 dropped 25.0%"), std::string::npos)
      << warnings.texts[0];
  EXPECT_NE(warnings.texts[0].find("raise it to 4 (about 0.0% then), or set it to 0"),
            std::string::npos)
      << warnings.texts[0];
}

TEST(DropWatch, IsQuietBelowTwoPercent) {
  const Warnings warnings;
  Statistics statistics({4}, 3);
  HotStep bad;
  bad.drop(1);
  PickCounts picks(4);
  for (int window = 0; window < 3; ++window) {
    play(statistics, bad, picks, 2);  // 2 of 128 picks: 1.6 %
    play(statistics, HotStep(), picks, DropWatch::kWindowSteps - 2);
  }
  EXPECT_TRUE(warnings.texts.empty());
}

TEST(DropWatch, OffersOnlyDroplessWhenNoFactorHelps) {
  const Warnings warnings;
  std::vector<int32_t> demand(64, 0);
  demand[0] = 64;
  DropWatch watch(1);
  for (int i = 0; i < DropWatch::kWindowSteps; ++i) {
    watch.add(demand, 63);
    watch.end_step();
  }
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_EQ(warnings.texts[0].find("raise"), std::string::npos) << warnings.texts[0];
  EXPECT_NE(warnings.texts[0].find("set it to 0"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::engine
