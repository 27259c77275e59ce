// SPDX-License-Identifier: Apache-2.0
// Traffic replays what was recorded, in order or mixed; a recording of counts keeps its loads.
#include "moe/workload/traffic.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "base/text_checks.h"
#include "moe/trace/writer.h"

namespace switchyard::moe {
namespace {

constexpr int kLayers = 2, kExperts = 6, kTopK = 2;
constexpr uint64_t kSeed = 7;

/// Token t of the recording picks, in layer l, experts that say where they come from.
uint16_t expert_of(int64_t token, int layer, int k) {
  return static_cast<uint16_t>((token * 2 + layer + k * 3) % kExperts);
}

/// A recording of `steps` steps of 1, 2, 3 ... tokens.
std::string write_trace(const TempFolder& folder, bool has_picks, int steps) {
  const std::string path = folder.path(has_picks ? "picks.swt" : "counts.swt");
  TraceWriter writer =
      TraceWriter::create(path, {"model", "test", kLayers, kExperts, kTopK, has_picks}).value();
  int64_t first = 0;
  for (int step = 0; step < steps; first += ++step) {
    const int64_t tokens = step + 1;
    const std::vector<TraceSequence> sequences{{1, 0, static_cast<uint32_t>(tokens), -1, 0}};
    std::vector<uint32_t> demand(kLayers * kExperts, 0), dropped(kLayers, 0);
    std::vector<uint16_t> picks;
    std::vector<float> weights;
    for (int layer = 0; layer < kLayers; ++layer)
      for (int64_t t = 0; t < tokens; ++t)
        for (int k = 0; k < kTopK; ++k) {
          const uint16_t expert = expert_of(first + t, layer, k);
          ++demand[static_cast<size_t>(layer * kExperts + expert)];
          picks.push_back(expert);
          weights.push_back(static_cast<float>(first + t));
        }
    if (!has_picks) picks.clear(), weights.clear();
    EXPECT_TRUE(
        writer.append({tokens, TraceStage::prefill, sequences, demand, dropped, weights, picks})
            .ok());
  }
  EXPECT_TRUE(writer.finish().ok());
  return path;
}

TEST(Traffic, ReplaysTokensInTheOrderOfTheRecording) {
  const TempFolder folder;
  const std::string path = write_trace(folder, true, 5);  // 15 tokens
  const Traffic traffic = Traffic::open("trace:" + path, kExperts, kTopK, kSeed).value();
  EXPECT_EQ(traffic.recorded_tokens(), 15);
  for (const int layer : {0, 1, 2, 3}) {
    for (const uint32_t step : {0u, 1u, 4u}) {
      const Picks picks = traffic.draw(layer, 4, step);
      ASSERT_EQ(picks.expert.size(), 8u);
      for (int64_t t = 0; t < 4; ++t) {
        const int64_t token = (step * 4 + t) % 15;  // goes on where the last step ended
        for (int k = 0; k < kTopK; ++k) {
          const size_t at = static_cast<size_t>(t * kTopK + k);
          EXPECT_EQ(picks.expert[at], expert_of(token, layer % kLayers, k));
          EXPECT_EQ(picks.weight[at], static_cast<float>(token));
        }
      }
    }
  }
}

TEST(Traffic, MixesTheSameTokensInEveryLayer) {
  const TempFolder folder;
  const std::string path = write_trace(folder, true, 6);  // 21 tokens
  const Traffic traffic = Traffic::open("trace-mixed:" + path, kExperts, kTopK, kSeed).value();
  const Picks first = traffic.draw(0, 400, 3), second = traffic.draw(1, 400, 3);
  std::set<float> seen;
  for (size_t at = 0; at < first.expert.size(); ++at) {
    const auto token = static_cast<int64_t>(first.weight[at]);
    EXPECT_EQ(first.expert[at], expert_of(token, 0, static_cast<int>(at % kTopK)));
    EXPECT_EQ(second.weight[at], first.weight[at]);
    EXPECT_EQ(second.expert[at], expert_of(token, 1, static_cast<int>(at % kTopK)));
    seen.insert(first.weight[at]);
  }
  EXPECT_EQ(seen.size(), 21u);  // 400 draws of 21 tokens miss one with probability 7e-8
  EXPECT_EQ(traffic.draw(0, 400, 3).expert, first.expert);
  EXPECT_NE(traffic.draw(0, 400, 4).expert, first.expert);
}

TEST(Traffic, KeepsTheLoadsOfARecordingOfCounts) {
  const TempFolder folder;
  const std::string path = write_trace(folder, false, 3);  // steps of 1, 2 and 3 tokens
  const Traffic traffic = Traffic::open("trace:" + path, kExperts, kTopK, kSeed).value();
  // Step 1 is that of tokens 1 and 2: layer 0 picks experts 2, 5 and 4, 1, each by half the tokens.
  constexpr int64_t kTokens = 8000;
  const Picks picks = traffic.draw(0, kTokens, 1);
  std::vector<double> share(kExperts, 0);
  for (const int32_t e : picks.expert) share[static_cast<size_t>(e)] += 1.0 / kTokens;
  for (int e = 0; e < kExperts; ++e) {
    const bool used = e == 1 || e == 2 || e == 4 || e == 5;
    EXPECT_NEAR(share[static_cast<size_t>(e)], used ? 0.5 : 0, 4 * std::sqrt(0.25 / kTokens)) << e;
  }
}

TEST(Traffic, LayersHavePopularExpertsOfTheirOwn) {
  const Traffic traffic = Traffic::open("zipf:2", 64, 1, kSeed).value();
  const auto hottest = [&](int layer) {
    std::vector<int> load(64, 0);
    for (const int32_t e : traffic.draw(layer, 500, 0).expert) ++load[static_cast<size_t>(e)];
    return std::max_element(load.begin(), load.end()) - load.begin();
  };
  std::set<int64_t> experts;
  for (int layer = 0; layer < 8; ++layer) experts.insert(hottest(layer));
  EXPECT_GT(experts.size(), 4u);
}

TEST(Traffic, RefusesWhatDoesNotFit) {
  const TempFolder folder;
  const std::string path = write_trace(folder, true, 2);
  const auto shape = Traffic::open("trace:" + path, 64, 8, kSeed);
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.error().code, Code::bad_request);
  EXPECT_TRUE(has(shape.error().message, "6 experts with 2 picks a token"));
  EXPECT_TRUE(has(shape.error().message, "the shape has 64 with 8"));
  const auto missing = Traffic::open("trace:/nonexistent.swt", kExperts, kTopK, kSeed);
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(has(missing.error().message, "/nonexistent.swt"));
  const auto empty = Traffic::open("trace:" + write_trace(folder, false, 0), kExperts, kTopK, 1);
  ASSERT_FALSE(empty.ok());
  EXPECT_TRUE(has(empty.error().message, "holds no token"));
  const auto unknown = Traffic::open("poisson", kExperts, kTopK, kSeed);
  ASSERT_FALSE(unknown.ok());
  EXPECT_TRUE(has(unknown.error().message, "trace-mixed:FILE"));
}

}  // namespace
}  // namespace switchyard::moe
