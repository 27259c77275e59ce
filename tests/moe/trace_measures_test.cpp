// SPDX-License-Identifier: Apache-2.0
// Measures of small traces whose values can be counted by hand.
#include <random>

#include <gtest/gtest.h>

#include "moe/trace/batches.h"
#include "moe/trace/closed_forms.h"
#include "moe/trace/coactivation.h"
#include "moe/trace/measures.h"
#include "moe/trace/topics.h"
#include "moe/trace_build.h"

namespace switchyard::moe {
namespace {

using Loads = std::vector<uint64_t>;

/// Two layers with opposite hot experts: summed over layers they would look even.
TEST(Measures, ImbalanceIsPerLayerAndStepThenAveraged) {
  const MadeTrace trace({"m", "p", 2, 2, 1, false},
                        {{{1, 0, "", {{0, 0, 0, 1}, {1, 1, 1, 0}}}},  // 3:1 and 1:3
                         {{1, 4, "", {{0}, {1}}}}});                  // 1:0 and 0:1
  const TraceMeasures measures = measure(trace.view());
  ASSERT_EQ(measures.layers.size(), 2u);
  EXPECT_EQ(measures.layers[0].load, (Loads{4, 1}));
  EXPECT_EQ(measures.layers[1].load, (Loads{1, 4}));
  for (const LayerMeasures& layer : measures.layers) {
    EXPECT_EQ(layer.imbalances, (std::vector<double>{1.5, 2}));
    EXPECT_DOUBLE_EQ(layer.imbalance.mean, 1.75);
    EXPECT_DOUBLE_EQ(layer.imbalance.p50, 1.5);
    EXPECT_DOUBLE_EQ(layer.imbalance.p95, 2);
    EXPECT_DOUBLE_EQ(layer.touched, 1.5);
    EXPECT_DOUBLE_EQ(layer.floor, 1.6);
    EXPECT_EQ(layer.picks, 5u);
  }
  const StageMeasures& prefill = measures.stages[0];
  const StageMeasures& decode = measures.stages[1];
  EXPECT_EQ(prefill.steps, 1);
  EXPECT_EQ(prefill.tokens, 4);
  EXPECT_DOUBLE_EQ(prefill.imbalance.mean, 1.5);
  EXPECT_EQ(decode.tokens, 1);
  EXPECT_DOUBLE_EQ(decode.imbalance.max, 2);
  EXPECT_EQ(measures.stages[2].steps, 0);
  EXPECT_DOUBLE_EQ(measures.all.imbalance.mean, 1.75);
}

TEST(Measures, EntropyAndDistance) {
  EXPECT_DOUBLE_EQ(entropy(Loads{5, 5, 5, 5}), 1);
  EXPECT_DOUBLE_EQ(entropy(Loads{7, 0, 0, 0}), 0);
  EXPECT_DOUBLE_EQ(entropy(Loads{1, 1, 0, 0}), 0.5);
  EXPECT_DOUBLE_EQ(distance(Loads{2, 2}, Loads{30, 30}), 0);
  EXPECT_DOUBLE_EQ(distance(Loads{1, 0}, Loads{0, 9}), 1);
  EXPECT_DOUBLE_EQ(distance(Loads{3, 1}, Loads{1, 1}), 0.25);
}

TEST(Measures, NoiseOfTheDistanceIsWhatEqualPopularitiesShow) {
  constexpr int kExperts = 16, kTokens = 400, kRepetitions = 300;
  std::mt19937 random(5);
  std::vector<double> weights;
  for (int e = 0; e < kExperts; ++e) weights.push_back(1.0 / (e + 1));
  std::discrete_distribution<> popularity(weights.begin(), weights.end());
  double measured = 0;
  Loads pooled(kExperts);
  for (int r = 0; r < kRepetitions; ++r) {
    Loads a(kExperts), b(kExperts);
    for (int t = 0; t < kTokens; ++t) {
      ++a[static_cast<size_t>(popularity(random))];
      ++b[static_cast<size_t>(popularity(random))];
    }
    measured += distance(a, b) / kRepetitions;
    for (size_t e = 0; e < pooled.size(); ++e) pooled[e] += a[e] + b[e];
  }
  EXPECT_NEAR(distance_noise(pooled, 1, kTokens, kTokens), measured, 0.05 * measured);
}

TEST(Measures, DriftComparesWindows) {
  // Layer 0 turns from expert 0 to expert 1 in the middle; layer 1 stays.
  std::vector<MadeStep> steps;
  for (uint32_t i = 0; i < 8; ++i)
    steps.push_back({{1, i, "", {{static_cast<uint16_t>(i < 4 ? 0 : 1)}, {1}}}});
  const MadeTrace trace({"m", "p", 2, 2, 1, false}, steps);
  const Drift drift = measure_drift(trace.view(), 4);
  EXPECT_EQ(drift.window_tokens, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_DOUBLE_EQ(drift.neighbours[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(drift.ends[0], 1);
  EXPECT_DOUBLE_EQ(drift.neighbours[1], 0);
  EXPECT_DOUBLE_EQ(drift.noise[1], 0) << "a certain expert has no noise";
  // More windows than steps: one step each.
  EXPECT_EQ(measure_drift(trace.view(), 100).window_tokens.size(), 8u);
}

/// Three requests that decode side by side; request r picks expert r for ever.
MadeTrace side_by_side() {
  std::vector<MadeStep> steps;
  for (uint32_t position = 0; position < 6; ++position) {
    MadeStep step;
    for (uint16_t request = 0; request < 3; ++request)
      step.push_back({request, position, "", {{request}}});
    steps.push_back(step);
  }
  steps.push_back({{2, 0, "", {{2}}}});  // a position that was computed again
  return MadeTrace({"m", "p", 1, 3, 1, true}, steps);
}

TEST(Batches, AreDealtAcrossOrAlongRequests) {
  const MadeTrace trace = side_by_side();
  const std::vector<int64_t> sizes{1, 3, 6, 18, 19};
  const auto across = regroup(trace.view(), BatchOrder::across_requests, sizes);
  ASSERT_EQ(across.size(), 4u) << "18 tokens make no batch of 19";
  EXPECT_EQ(across[1].num_batches, 6);
  EXPECT_DOUBLE_EQ(across[0].imbalance[0], 3);
  EXPECT_DOUBLE_EQ(across[1].imbalance[0], 1);  // one token of each request
  EXPECT_DOUBLE_EQ(across[1].touched[0], 3);
  const auto along = regroup(trace.view(), BatchOrder::along_requests, sizes);
  EXPECT_DOUBLE_EQ(along[1].imbalance[0], 3);  // three tokens of one request
  EXPECT_DOUBLE_EQ(along[2].touched[0], 1);
  EXPECT_DOUBLE_EQ(along[3].imbalance[0], 1);
}

TEST(Batches, IndependentTokensAgreeWithTheClosedForm) {
  constexpr int kExperts = 16, kTopK = 2, kTokens = 4096;
  std::mt19937 random(11);
  MadeSequence sequence{1, 0, "", {{}}};
  for (int t = 0; t < kTokens; ++t) {
    const auto first = static_cast<uint16_t>(random() % kExperts);
    const auto second = static_cast<uint16_t>((first + 1 + random() % (kExperts - 1)) % kExperts);
    sequence.picks[0].insert(sequence.picks[0].end(), {first, second});
  }
  const MadeTrace trace({"m", "p", 1, kExperts, kTopK, true}, {{sequence}});
  const std::vector<double> pi = inclusion(measure(trace.view()).layers[0].load, kTopK);
  for (const BatchMeasures& row :
       regroup(trace.view(), BatchOrder::along_requests, std::vector<int64_t>{8, 32, 128})) {
    const double expected = expected_imbalance(pi, row.batch);
    EXPECT_NEAR(row.imbalance[0], expected, 0.06 * expected) << row.batch;
    EXPECT_NEAR(row.touched[0], expected_touched(pi, row.batch), 0.1 * kExperts) << row.batch;
  }
}

TEST(Coactivation, CountsPairsOfATokensPicks) {
  // Experts 0 and 1 always together, 2 and 3 always together.
  const MadeTrace trace({"m", "p", 1, 4, 2, true},
                        {{{1, 0, "", {{0, 1, 1, 0, 2, 3}}}}, {{1, 3, "", {{3, 2}}}}});
  const Coactivation counts = measure_coactivation(trace.view(), 0);
  EXPECT_EQ(counts.tokens, 4u);
  EXPECT_EQ(counts.at(0, 0), 2u);
  EXPECT_EQ(counts.at(0, 1), 2u);
  EXPECT_EQ(counts.at(1, 0), 2u);
  EXPECT_EQ(counts.at(0, 2), 0u);
  EXPECT_DOUBLE_EQ(counts.given(0, 1), 1);
  EXPECT_DOUBLE_EQ(counts.lift(0, 1), 3);  // 1/3 by chance: one of the three others
  const auto pairs = strongest_pairs(counts, 2);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].a, 0);
  EXPECT_EQ(pairs[0].b, 1);
  EXPECT_EQ(pairs[1].a, 2);
  EXPECT_EQ(pairs[1].tokens, 2u);
}

/// Two topics in one step, one alone in another, and a token without one.
MadeTrace topical(bool picks) {
  return MadeTrace({"m", "p", 1, 2, 1, picks},
                   {{{1, 0, "german", {{0, 0, 0}}}, {2, 0, "c++", {{1}}}},
                    {{1, 3, "german", {{0, 1}}}},
                    {{3, 0, "", {{1}}}}});
}

TEST(Topics, AreToldApartByPicks) {
  const TopicSkew skew = measure_topics(topical(true).view());
  ASSERT_EQ(skew.topics.size(), 2u);
  EXPECT_EQ(skew.topics[0].name, "german");
  EXPECT_EQ(skew.topics[0].tokens, 5);
  EXPECT_EQ(skew.topics[0].load[0], (Loads{4, 1}));
  EXPECT_DOUBLE_EQ(skew.topics[0].imbalance[0], 1.6);
  EXPECT_EQ(skew.topics[1].load[0], (Loads{0, 1}));
  EXPECT_EQ(skew.unlabelled_tokens, 1);
  EXPECT_EQ(skew.mixed_tokens, 0);
  // The even mixture is (0.8 + 0) / 2 and (0.2 + 1) / 2.
  EXPECT_DOUBLE_EQ(skew.mixed_imbalance[0], 1.2);
  EXPECT_DOUBLE_EQ(skew.topics[0].distance[0], 0.4);
  EXPECT_DOUBLE_EQ(skew.topics[1].distance[0], 0.4);
}

TEST(Topics, CountsAloneTellStepsOfOneTopicApart) {
  const TopicSkew skew = measure_topics(topical(false).view());
  ASSERT_EQ(skew.topics.size(), 1u);
  EXPECT_EQ(skew.topics[0].load[0], (Loads{1, 1}));
  EXPECT_EQ(skew.mixed_tokens, 4);
  EXPECT_EQ(skew.unlabelled_tokens, 1);
}

}  // namespace
}  // namespace switchyard::moe
