// SPDX-License-Identifier: Apache-2.0
// Synthetic routing against what probability says of it: experts touched, the hottest expert, and
// inclusion probabilities, each within the error of its number of draws.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "moe/workload/draw.h"
#include "moe/workload/popularity.h"

namespace switchyard::moe {
namespace {

constexpr uint64_t kSeed = 2024;

std::vector<double> weights_of(std::string_view text, int num_experts, uint64_t seed = kSeed) {
  return Popularity::parse(text).value().weights(num_experts, seed);
}

/// Probability of each expert to be one of a token's two picks: first p, or second after another.
std::vector<double> inclusion_of_two(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> inclusion;
  for (size_t i = 0; i < weights.size(); ++i) {
    double p = weights[i] / sum;
    for (size_t j = 0; j < weights.size(); ++j) {
      if (j != i) p += weights[j] / sum * weights[i] / (sum - weights[j]);
    }
    inclusion.push_back(p);
  }
  return inclusion;
}

struct Means {
  double touched = 0, imbalance = 0;
};

/// Means over `steps` draws of B tokens.
Means measure(const std::vector<double>& weights, int64_t tokens, int top_k, uint32_t steps) {
  Means means;
  for (uint32_t step = 0; step < steps; ++step) {
    std::vector<int> load(weights.size(), 0);
    for (const int32_t e : draw_weighted(weights, tokens, top_k, kSeed, step)) ++load[e];
    means.touched +=
        static_cast<double>(std::count_if(load.begin(), load.end(), [](int n) { return n > 0; }));
    means.imbalance += *std::max_element(load.begin(), load.end()) *
                       static_cast<double>(weights.size()) / static_cast<double>(tokens * top_k);
  }
  means.touched /= steps;
  means.imbalance /= steps;
  return means;
}

/// sum of 1 - (1 - p)^B: each expert is missed by all B tokens or is not.
double expected_touched(const std::vector<double>& inclusion, int64_t tokens) {
  double sum = 0;
  for (const double p : inclusion) sum += 1 - std::pow(1 - p, static_cast<double>(tokens));
  return sum;
}

/// The mean largest of independent binomial loads over the mean load.
double expected_imbalance(const std::vector<double>& inclusion, int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  const double sum = std::accumulate(inclusion.begin(), inclusion.end(), 0.0);
  std::vector<double> at_most(inclusion.size(), 0);  // P(load of i <= x)
  double largest = 0;
  for (double x = 0; x < n; ++x) {
    const double log_choose = std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1);
    double all = 1;
    for (size_t i = 0; i < inclusion.size(); ++i) {
      const double p = inclusion[i];
      at_most[i] += std::exp(log_choose + x * std::log(p) + (n - x) * std::log1p(-p));
      all *= std::min(at_most[i], 1.0);
    }
    largest += 1 - all;
  }
  return largest / (sum * n / static_cast<double>(inclusion.size()));
}

TEST(Draw, TokensGetDifferentExpertsAndTheSeedDecides) {
  const auto weights = weights_of("zipf:1.5", 16);
  const auto picks = draw_weighted(weights, 200, 5, kSeed, 3);
  ASSERT_EQ(picks.size(), 1000u);
  for (size_t t = 0; t < 200; ++t) {
    EXPECT_EQ(std::set<int32_t>(&picks[t * 5], &picks[t * 5] + 5).size(), 5u);
  }
  EXPECT_EQ(picks, draw_weighted(weights, 200, 5, kSeed, 3));
  EXPECT_NE(picks, draw_weighted(weights, 200, 5, kSeed, 4));
  EXPECT_NE(picks, draw_weighted(weights, 200, 5, kSeed + 1, 3));
  // A token's picks do not depend on how many others there are.
  const auto fewer = draw_weighted(weights, 7, 5, kSeed, 3);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), picks.begin()));
}

TEST(Draw, UniformTouchesAsManyExpertsAsTheFormulaSays) {
  const struct {
    int experts, top_k;
    int64_t tokens;
  } cases[] = {{8, 2, 1}, {8, 2, 8}, {64, 8, 4}, {64, 8, 16}, {128, 8, 32}, {256, 8, 64}};
  for (const auto& c : cases) {
    const double wanted = c.experts * (1 - std::pow(1 - double{1} * c.top_k / c.experts, c.tokens));
    const Means found = measure(weights_of("uniform", c.experts), c.tokens, c.top_k, 400);
    EXPECT_NEAR(found.touched, wanted, 0.01 * wanted) << c.experts << " " << c.tokens;
  }
}

// 1 + m_E sqrt((1 - k/E) E/(kB) E/(E-1)), with m_E the mean largest of E standard normal numbers:
// an approximation that is best for many tokens.
TEST(Draw, UniformImbalanceFallsAsTheFormulaSays) {
  constexpr double kMeanLargestOf8 = 1.4236, kMeanLargestOf64 = 2.3437;
  const struct {
    int experts, top_k;
    int64_t tokens;
    double mean_largest, error;
  } cases[] = {{8, 2, 8, kMeanLargestOf8, 0.06},
               {8, 2, 32, kMeanLargestOf8, 0.03},
               {8, 2, 512, kMeanLargestOf8, 0.02},
               {64, 8, 512, kMeanLargestOf64, 0.03}};
  for (const auto& c : cases) {
    const double ratio = 1.0 * c.top_k / c.experts;
    const double wanted =
        1 + c.mean_largest * std::sqrt((1 - ratio) / (ratio * static_cast<double>(c.tokens)) *
                                       c.experts / (c.experts - 1));
    const Means found = measure(weights_of("uniform", c.experts), c.tokens, c.top_k, 400);
    EXPECT_NEAR(found.imbalance, wanted, c.error * wanted) << c.experts << " " << c.tokens;
  }
}

TEST(Draw, ZipfTouchesAndLoadsAsItsProbabilitiesSay) {
  for (const char* text : {"zipf:0.3", "zipf:1.0"}) {
    for (const int experts : {8, 64}) {
      const auto weights = weights_of(text, experts);
      const auto inclusion = inclusion_of_two(weights);
      EXPECT_NEAR(std::accumulate(inclusion.begin(), inclusion.end(), 0.0), 2, 1e-9);
      for (const int64_t tokens : {int64_t{8}, int64_t{128}}) {
        const Means found = measure(weights, tokens, 2, 400);
        const double touched = expected_touched(inclusion, tokens);
        EXPECT_NEAR(found.touched, touched, 0.02 * touched) << text << experts << " " << tokens;
        // Loads compete for the same tokens, which the formula leaves out: worst for few experts.
        const double imbalance = expected_imbalance(inclusion, tokens);
        EXPECT_NEAR(found.imbalance, imbalance, 0.08 * imbalance)
            << text << " " << experts << " " << tokens;
      }
    }
  }
}

// Popularity does not average out: with many tokens only E max(p) / K is left.
TEST(Draw, ManyTokensLeaveTheImbalanceOfThePopularity) {
  const auto weights = weights_of("zipf:0.6", 8);
  const auto inclusion = inclusion_of_two(weights);
  const double floor = 8 * *std::max_element(inclusion.begin(), inclusion.end()) / 2;
  EXPECT_NEAR(floor, 1.88, 0.01);
  EXPECT_NEAR(measure(weights, 20000, 2, 4).imbalance, floor, 0.02 * floor);
}

TEST(Draw, SystematicKeepsInclusionProbabilitiesExactly) {
  const std::vector<double> inclusion{1.0, 0.9, 0.55, 0.3, 0.2, 0.05, 0.0};
  constexpr int64_t kTokens = 20000;
  const auto picks = draw_systematic(inclusion, kTokens, 3, kSeed, 0);
  ASSERT_EQ(std::ssize(picks), 3 * kTokens);
  std::vector<double> found(inclusion.size(), 0);
  for (const int32_t e : picks) found[e] += 1.0 / kTokens;
  for (size_t e = 0; e < inclusion.size(); ++e) {
    const double deviation = std::sqrt(inclusion[e] * (1 - inclusion[e]) / kTokens);
    EXPECT_NEAR(found[e], inclusion[e], 4 * deviation + 1e-9) << e;
  }
  for (int64_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(std::set<int32_t>(&picks[t * 3], &picks[t * 3] + 3).size(), 3u) << t;
  }
}

TEST(Popularity, ZipfIsAShuffledPowerOfTheRank) {
  auto weights = weights_of("zipf:1.0", 40);
  EXPECT_NE(weights, weights_of("zipf:1.0", 40, kSeed + 1));
  std::sort(weights.rbegin(), weights.rend());
  for (size_t r = 0; r < weights.size(); ++r) {
    EXPECT_NEAR(weights[r], 1.0 / (1.0 + static_cast<double>(r)), 1e-12);
  }
}

// The median of x^-a on [1, b] is where half of the area lies; 1.01 is nearly the logarithm's.
TEST(Popularity, PowerLawHasItsMedianAndRange) {
  const auto weights = [] {
    auto sorted = weights_of("powerlaw:1.01", 20001);
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }();
  EXPECT_GE(weights.front(), 1);
  EXPECT_LE(weights.back(), 0.8 * 4096);
  const double b = 0.8 * 4096, a = 0.01;
  const double median = std::pow((1 + std::pow(b, -a)) / 2, -1 / a);
  // The logarithm is nearly uniform on [0, 8.1], so that of the median is known to 8.1/2/sqrt(20001).
  EXPECT_NEAR(std::log(weights[10000]), std::log(median), 3 * 0.029);
}

TEST(Popularity, SaysWhatItDoesNotKnow) {
  for (const char* text : {"", "zipf", "zipf:", "zipf:x", "zipf:-1", "zipf:nan", "zipf:1.0x",
                           "zipf:11", "pareto:1", "uniform:1"}) {
    const auto popularity = Popularity::parse(text);
    ASSERT_FALSE(popularity.ok()) << text;
    EXPECT_EQ(popularity.error().code, Code::bad_request);
    EXPECT_NE(popularity.error().message.find("'" + std::string(text) + "'"), std::string::npos);
  }
  for (const char* text : {"uniform", "zipf:0.5", "powerlaw:1.2"}) {
    EXPECT_EQ(Popularity::parse(text).value().text(), text);
  }
}

}  // namespace
}  // namespace switchyard::moe
