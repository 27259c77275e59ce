// SPDX-License-Identifier: Apache-2.0
// Every stage of the sampler by its effect: on small rows by hand, on drawn frequencies with fixed
// seeds, and on a vocabulary of real size against a plain implementation.
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::engine {
namespace {

/// One row with what it needs; changed through its members, then picked.
struct Case {
  std::vector<float> logits;
  std::vector<int32_t> tokens{0};
  int prompt_tokens = 1;
  SamplingParams params;
  std::vector<int32_t> end_tokens;
  uint64_t seed = 0;

  SampleRow row(std::vector<float>& copy) const {
    copy = logits;
    return {copy, tokens, prompt_tokens, &params, end_tokens, seed};
  }
};

class SamplerTest : public ::testing::Test {
 protected:
  static PoolOptions pool_options() {
    PoolOptions options;
    options.num_threads = 2;
    options.pin = false;
    return options;
  }

  Pick pick(const Case& given) {
    Sampler sampler(static_cast<int>(given.logits.size()), 1, pool_);
    std::vector<float> copy;
    SampleRow row = given.row(copy);
    return sampler.pick({&row, 1})[0];
  }

  /// How often each token is drawn over `seeds` seeds.
  std::vector<int> histogram(Case given, int seeds) {
    Sampler sampler(static_cast<int>(given.logits.size()), 1, pool_);
    std::vector<int> count(given.logits.size());
    std::vector<float> copy;
    for (int seed = 0; seed < seeds; ++seed) {
      given.seed = static_cast<uint64_t>(seed);
      SampleRow row = given.row(copy);
      ++count[static_cast<size_t>(sampler.pick({&row, 1})[0].token)];
    }
    return count;
  }

  static std::vector<float> logs(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
  }

  /// Fails when a count is further from its expectation than 4.5 standard deviations.
  static void expect_frequencies(const std::vector<int>& count, const std::vector<double>& p) {
    const int draws = std::accumulate(count.begin(), count.end(), 0);
    for (size_t i = 0; i < p.size(); ++i) {
      const double mean = p[i] * draws;
      EXPECT_NEAR(count[i], mean, 4.5 * std::sqrt(mean * (1 - p[i]))) << "token " << i;
    }
  }

  Pool pool_{pool_options()};
};

TEST_F(SamplerTest, GreedyTakesTheLargestAndTheLowestOfTies) {
  Case given;
  given.params.temperature = 0;
  given.logits = {1, 5, 2, 5, -1};
  EXPECT_EQ(pick(given).token, 1);
  given.logits = {-9, -9};
  EXPECT_EQ(pick(given).token, 0);
}

TEST_F(SamplerTest, GreedyIgnoresTheStagesThatKeepTheBest) {
  Case given;
  given.logits = {1, 2, 3};
  given.params.temperature = 0;
  given.params.top_k = 2;
  given.params.top_p = 0.1f;
  given.params.min_p = 0.5f;
  EXPECT_EQ(pick(given).token, 2);
}

TEST_F(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<double> p{0.5, 0.25, 0.15, 0.08, 0.02};
  Case given;
  given.logits = logs(p);
  expect_frequencies(histogram(given, 20000), p);
}

TEST_F(SamplerTest, TemperatureSharpensAndFlattens) {
  Case given;
  given.logits = logs({0.6, 0.4});
  given.params.temperature = 0.5f;  // p squared
  expect_frequencies(histogram(given, 20000), {0.36 / 0.52, 0.16 / 0.52});
  given.params.temperature = 2.0f;  // the root of p
  const double a = std::sqrt(0.6), b = std::sqrt(0.4);
  expect_frequencies(histogram(given, 20000), {a / (a + b), b / (a + b)});
}

TEST_F(SamplerTest, TinyTemperatureIsGreedyAndHugeOneUniform) {
  Case given;
  given.logits = {1, 1.001f, -50};
  given.params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(histogram(given, 500)[1], 500);
  given.params.temperature = std::numeric_limits<float>::max();
  expect_frequencies(histogram(given, 9000), {1 / 3.0, 1 / 3.0, 1 / 3.0});
}

TEST_F(SamplerTest, TopKKeepsExactlyK) {
  Case given;
  given.logits = logs({0.1, 0.4, 0.1, 0.3, 0.1});
  given.params.top_k = 3;  // the third place is a tie: the lowest token has it
  expect_frequencies(histogram(given, 20000), {0.1 / 0.8, 0.4 / 0.8, 0, 0.3 / 0.8, 0});
  given.params.top_k = 1;
  EXPECT_EQ(histogram(given, 200)[1], 200);
  given.params.top_k = 99;
  expect_frequencies(histogram(given, 20000), {0.1, 0.4, 0.1, 0.3, 0.1});
}

TEST_F(SamplerTest, TopPKeepsTheFewestThatReachIt) {
  Case given;
  given.logits = logs({0.05, 0.5, 0.15, 0.3});
  given.params.top_p = 0.79f;
  expect_frequencies(histogram(given, 20000), {0, 0.5 / 0.8, 0, 0.3 / 0.8});
  given.params.top_p = 0.81f;
  expect_frequencies(histogram(given, 20000), {0, 0.5 / 0.95, 0.15 / 0.95, 0.3 / 0.95});
  given.params.top_p = 0.0001f;  // never fewer than one
  EXPECT_EQ(histogram(given, 200)[1], 200);
}

TEST_F(SamplerTest, TopPCountsWithinTopK) {
  Case given;
  given.logits = logs({0.4, 0.2, 0.2, 0.2});
  given.params.top_k = 2;     // 2/3 and 1/3
  given.params.top_p = 0.6f;  // within the two, the first suffices; of all four it would not
  EXPECT_EQ(histogram(given, 300)[0], 300);
}

TEST_F(SamplerTest, MinPIsRelativeToTheLikeliest) {
  Case given;
  given.logits = logs({0.5, 0.26, 0.14, 0.1});
  given.params.min_p = 0.5f;
  expect_frequencies(histogram(given, 20000), {0.5 / 0.76, 0.26 / 0.76, 0, 0});
  given.params.top_k = 3;  // the same after a selection
  expect_frequencies(histogram(given, 20000), {0.5 / 0.76, 0.26 / 0.76, 0, 0});
  given.params.min_p = 1.0f;
  EXPECT_EQ(histogram(given, 200)[0], 200);
}

TEST_F(SamplerTest, TemperatureComesBeforeMinP) {
  Case given;
  given.logits = logs({0.64, 0.36});
  given.params.min_p = 0.7f;  // 0.36 / 0.64 = 0.5625 is too little
  EXPECT_EQ(histogram(given, 200)[0], 200);
  given.params.temperature = 2.0f;  // sqrt: 0.75 suffices
  expect_frequencies(histogram(given, 20000), {0.8 / 1.4, 0.6 / 1.4});
}

TEST_F(SamplerTest, RepetitionPenaltyPushesSeenTokensDownOnce) {
  Case given;
  given.params.temperature = 0;
  given.params.repetition_penalty = 2.0f;
  given.logits = {4, 2.5f, -3, -5};
  given.tokens = {0, 0, 0};  // three times, but divided once: 2
  EXPECT_EQ(pick(given).token, 1);
  given.logits = {4, 1.5f, -3, -5};
  EXPECT_EQ(pick(given).token, 0);
  given.logits = {-9, -7, -3, -5};
  given.tokens = {2};  // a negative logit is multiplied: -6
  EXPECT_EQ(pick(given).token, 3);
}

TEST_F(SamplerTest, RepetitionPenaltySeesPromptAndOutput) {
  Case given;
  given.params.temperature = 0;
  given.params.repetition_penalty = 1.5f;
  given.logits = {3, 2.9f, 2.5f};
  given.tokens = {0, 1};
  given.prompt_tokens = 1;
  EXPECT_EQ(pick(given).token, 2);
}

TEST_F(SamplerTest, PresenceAndFrequencySeeTheOutputAlone) {
  Case given;
  given.params.temperature = 0;
  given.logits = {3, 2.5f};
  given.tokens = {0, 0, 0, 0};
  given.prompt_tokens = 4;
  given.params.presence_penalty = 1.0f;
  EXPECT_EQ(pick(given).token, 0) << "the prompt must not count";
  given.prompt_tokens = 1;  // three in the output: presence counts once
  EXPECT_EQ(pick(given).token, 1);
  given.logits[1] = 1.9f;
  EXPECT_EQ(pick(given).token, 0);
  given.params.frequency_penalty = 0.1f;  // 3 - 1 - 3 * 0.1 = 1.7
  EXPECT_EQ(pick(given).token, 1);
  given.logits[1] = 1.6f;
  EXPECT_EQ(pick(given).token, 0);
  given.params.presence_penalty = -2.0f;  // encourages
  given.logits = {0, 1.5f};
  EXPECT_EQ(pick(given).token, 0);
}

TEST_F(SamplerTest, ScratchIsCleanBetweenRows) {
  Sampler sampler(4, 1, pool_);
  Case seen, fresh;
  seen.params.temperature = fresh.params.temperature = 0;
  seen.params.repetition_penalty = fresh.params.repetition_penalty = 2.0f;
  seen.params.frequency_penalty = fresh.params.frequency_penalty = 2.0f;
  seen.logits = fresh.logits = {3, 2, 1, 0};
  seen.tokens = {0, 0, 0};
  fresh.tokens = {3};
  std::vector<float> copy;
  for (int i = 0; i < 3; ++i) {
    SampleRow row = seen.row(copy);
    EXPECT_EQ(sampler.pick({&row, 1})[0].token, 1);
    row = fresh.row(copy);
    EXPECT_EQ(sampler.pick({&row, 1})[0].token, 0);
  }
}

TEST_F(SamplerTest, EndIsMaskedBeforeMinTokens) {
  Case given;
  given.params.temperature = 0;
  given.logits = {1, 9, 5};
  given.end_tokens = {1};
  given.tokens = {0, 2};
  given.params.min_tokens = 2;  // one is out
  EXPECT_EQ(pick(given).token, 2);
  given.params.temperature = 1;
  EXPECT_EQ(histogram(given, 2000)[1], 0);
  given.params.temperature = 0;
  given.params.min_tokens = 1;
  EXPECT_EQ(pick(given).token, 1);
}

TEST_F(SamplerTest, MaskedWholeVocabularyStillGivesAToken) {
  Case given;
  given.logits = {1, 2};
  given.end_tokens = {0, 1};
  given.params.min_tokens = 5;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int top_k : {0, 1}) {
      given.params.temperature = temperature;
      given.params.top_k = top_k;
      for (const float top_p : {0.9f, 1.0f}) {
        given.params.top_p = top_p;
        for (const float min_p : {0.0f, 0.3f}) {
          given.params.min_p = min_p;
          EXPECT_EQ(pick(given).token, 0);
        }
      }
    }
  }
}

TEST_F(SamplerTest, NonFiniteLogitsAreReportedNotSampled) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const float temperature : {0.0f, 1.0f}) {
      Case given;
      given.params.temperature = temperature;
      given.logits = {1, bad, 2};
      const Pick result = pick(given);
      EXPECT_TRUE(result.non_finite);
      EXPECT_EQ(result.token, -1);
    }
  }
}

TEST_F(SamplerTest, PenaltiesOfExtremeLogitsStayFinite) {
  Case given;
  given.logits = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 0};
  given.tokens = {0, 1};
  given.prompt_tokens = 0;
  given.params.repetition_penalty = 1e-30f;
  given.params.frequency_penalty = -2;
  EXPECT_EQ(pick(given).token, 0);
}

TEST_F(SamplerTest, SameSeedAndPositionGiveTheSameToken) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  Case given;
  given.logits.resize(500);
  for (float& logit : given.logits) logit = normal(random);
  given.seed = 42;
  const int32_t first = pick(given).token;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pick(given).token, first);
  std::set<int32_t> by_seed, by_position;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    given.seed = seed << 32;  // the high half of the key counts too
    by_seed.insert(pick(given).token);
  }
  given.seed = 42;
  for (int i = 0; i < 20; ++i) {
    given.tokens.push_back(0);
    by_position.insert(pick(given).token);
  }
  EXPECT_GT(by_seed.size(), 10u);
  EXPECT_GT(by_position.size(), 10u);
}

TEST_F(SamplerTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int kRows = 9, kVocab = 300;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 3);
  std::vector<Case> cases(kRows);
  for (int i = 0; i < kRows; ++i) {
    Case& given = cases[static_cast<size_t>(i)];
    given.logits.resize(kVocab);
    for (float& logit : given.logits) logit = normal(random);
    given.seed = static_cast<uint64_t>(i);
    given.params.top_k = i % 3 * 20;
    given.params.top_p = i % 2 ? 0.9f : 1.0f;
    given.params.repetition_penalty = 1.0f + 0.1f * static_cast<float>(i % 4);
  }
  std::vector<std::vector<float>> copies(kRows);
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < kRows; ++i) rows.push_back(cases[i].row(copies[i]));
  Sampler sampler(kVocab, kRows, pool_);
  const auto together = sampler.pick(rows);
  for (size_t i = 0; i < kRows; ++i) EXPECT_EQ(together[i].token, pick(cases[i]).token);
}

/// Tokens that survive top-k, then top-p, then min-p, by the definition: softmax of a full sort.
std::set<int32_t> kept_by_definition(const Case& given) {
  std::vector<int32_t> order(given.logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return given.logits[static_cast<size_t>(a)] > given.logits[static_cast<size_t>(b)];
  });
  if (given.params.top_k > 0) order.resize(static_cast<size_t>(given.params.top_k));
  const double largest = static_cast<double>(given.logits[static_cast<size_t>(order[0])]);
  std::vector<double> weight;
  for (const int32_t token : order)
    weight.push_back(
        std::exp((static_cast<double>(given.logits[static_cast<size_t>(token)]) - largest) /
                 static_cast<double>(given.params.temperature)));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::set<int32_t> kept;
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (sum >= static_cast<double>(given.params.top_p) * total) break;
    sum += weight[i];
    if (weight[i] >= static_cast<double>(given.params.min_p)) kept.insert(order[i]);
  }
  return kept;
}

TEST_F(SamplerTest, RealVocabularyKeepsWhatTheDefinitionKeeps) {
  Case given;
  given.logits.resize(151936);
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  for (float& logit : given.logits) logit = normal(random);
  struct Setting {
    float temperature, top_p, min_p;
    int top_k;
  };
  for (const Setting& setting :
       {Setting{1.0f, 0.95f, 0, 50}, Setting{0.5f, 0.3f, 0, 0}, Setting{0.3f, 0.9f, 0, 0},
        Setting{2.0f, 0.9f, 0, 0}, Setting{2.0f, 0.8f, 0.01f, 0}, Setting{1.0f, 1.0f, 0.05f, 0},
        Setting{0.7f, 0.5f, 0.02f, 1000}}) {
    given.params.temperature = setting.temperature;
    given.params.top_p = setting.top_p;
    given.params.min_p = setting.min_p;
    given.params.top_k = setting.top_k;
    const std::set<int32_t> kept = kept_by_definition(given);
    const std::vector<int> count = histogram(given, 60);
    for (size_t i = 0; i < count.size(); ++i) {
      if (count[i] == 0) continue;
      EXPECT_TRUE(kept.count(static_cast<int32_t>(i))) << "token " << i;
    }
  }
}

TEST_F(SamplerTest, ABiasIsAddedToItsTokenAlone) {
  Case given;
  given.logits = {1, 2, 3, 2.5f};
  given.params.temperature = 0;
  given.params.logit_bias = {{0, 2.25f}, {2, -100}};
  EXPECT_EQ(pick(given).token, 0);
  given.params.logit_bias = {{0, 1.0f}, {2, -100}};
  EXPECT_EQ(pick(given).token, 3);
  // Before the penalties: 3 + 1 = 4 halved is below 2.5.
  given.tokens = {2};
  given.params.logit_bias = {{2, 1}};
  given.params.repetition_penalty = 2;
  EXPECT_EQ(pick(given).token, 3);
}

TEST_F(SamplerTest, LogprobsAreOfTheLogitsAsTheyCame) {
  Case given;
  given.logits = logs({0.5, 0.25, 0.15, 0.1});
  given.params.logprobs = 3;
  given.params.temperature = 0.5f;
  given.params.logit_bias = {{3, 100}};
  given.params.repetition_penalty = 3;
  given.params.top_k = 1;
  std::vector<float> copy;
  SampleRow row = given.row(copy);
  TokenLogprobs reported;
  row.logprobs = &reported;
  Sampler sampler(4, 1, pool_);
  ASSERT_EQ(sampler.pick({&row, 1})[0].token, 3);
  EXPECT_EQ(reported.chosen.token, 3);
  EXPECT_NEAR(reported.chosen.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(reported.top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(reported.top[i].token, static_cast<int32_t>(i));
  EXPECT_NEAR(reported.top[1].logprob, std::log(0.25), 1e-6);
}

TEST_F(SamplerTest, LogprobsOfLargeLogitsAreFinite) {
  Case given;
  given.logits = {3e38f, -3e38f, 0};
  given.params.logprobs = 3;
  std::vector<float> copy;
  SampleRow row = given.row(copy);
  TokenLogprobs reported;
  row.logprobs = &reported;
  Sampler sampler(3, 1, pool_);
  ASSERT_EQ(sampler.pick({&row, 1})[0].token, 0);
  EXPECT_EQ(reported.chosen.logprob, 0);
  for (const TokenLogprobs::One& one : reported.top) EXPECT_FALSE(std::isnan(one.logprob));
  EXPECT_FALSE(row.logprobs->top.empty());
}

}  // namespace
}  // namespace switchyard::engine
