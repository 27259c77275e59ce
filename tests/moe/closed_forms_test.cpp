// SPDX-License-Identifier: Apache-2.0
// The closed forms against a simulation of tokens that pick distinct experts, and against published tables.
#include "moe/trace/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::moe {
namespace {

/// Tokens that draw K distinct experts, each draw in proportion to the weights of those left.
class Tokens {
 public:
  Tokens(std::vector<double> weights, int top_k) : weights_(std::move(weights)), top_k_(top_k) {}

  void pick(std::vector<int>& load) {
    // The K largest of weight-scaled exponential races are such a draw.
    std::vector<std::pair<double, size_t>> race;
    for (size_t e = 0; e < weights_.size(); ++e)
      race.emplace_back(std::exponential_distribution<>(weights_[e])(random_), e);
    std::nth_element(race.begin(), race.begin() + top_k_ - 1, race.end());
    for (int k = 0; k < top_k_; ++k) ++load[race[static_cast<size_t>(k)].second];
  }

  std::vector<double> inclusion(int tokens) {
    std::vector<int> load(weights_.size());
    for (int t = 0; t < tokens; ++t) pick(load);
    std::vector<double> pi;
    for (const int count : load) pi.push_back(static_cast<double>(count) / tokens);
    return pi;
  }

  struct Means {
    double imbalance = 0, touched = 0;
  };
  Means simulate(int batch, int repetitions) {
    Means means;
    for (int r = 0; r < repetitions; ++r) {
      std::vector<int> load(weights_.size());
      for (int t = 0; t < batch; ++t) pick(load);
      const double mean = static_cast<double>(top_k_) * batch / static_cast<double>(load.size());
      means.imbalance += *std::max_element(load.begin(), load.end()) / mean / repetitions;
      means.touched +=
          static_cast<double>(load.size() - std::count(load.begin(), load.end(), 0)) / repetitions;
    }
    return means;
  }

 private:
  std::vector<double> weights_;
  int top_k_;
  std::mt19937 random_{17};
};

std::vector<double> zipf(int count, double exponent) {
  std::vector<double> weights;
  for (int i = 1; i <= count; ++i) weights.push_back(std::pow(i, -exponent));
  return weights;
}

TEST(ClosedForms, MeanMaximumOfNormals) {
  EXPECT_NEAR(normal_maximum(1), 0, 1e-9);
  EXPECT_NEAR(normal_maximum(2), 1 / std::sqrt(M_PI), 1e-6);
  EXPECT_NEAR(normal_maximum(8), 1.4236, 1e-4);  // Teichroew 1956
  EXPECT_NEAR(normal_maximum(100), 2.5076, 1e-4);
}

TEST(ClosedForms, UniformImbalanceOfEightExpertsTwoPicks) {
  const double expected[] = {1.93, 1.47, 1.23, 1.12};
  const int64_t batches[] = {8, 32, 128, 512};
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(uniform_imbalance(8, 2, batches[i]), expected[i], 0.006) << batches[i];
  EXPECT_EQ(uniform_imbalance(1, 1, 5), 1);
}

TEST(ClosedForms, TouchedOfUniformPopularity) {
  EXPECT_NEAR(expected_touched(std::vector<double>(8, 0.25), 8), 7.2, 0.01);
  EXPECT_NEAR(expected_touched(std::vector<double>(64, 0.125), 16), 56.4, 0.05);
  EXPECT_DOUBLE_EQ(expected_touched(std::vector<double>{1, 0, 1}, 3), 2);
}

TEST(ClosedForms, AgreeWithASimulation) {
  struct Case {
    int experts, top_k;
    double exponent;
  };
  for (const Case c : {Case{8, 2, 0}, Case{8, 2, 0.6}, Case{32, 4, 0.3}, Case{64, 8, 0.8}}) {
    Tokens tokens(zipf(c.experts, c.exponent), c.top_k);
    const std::vector<double> pi = tokens.inclusion(40000);
    for (const int batch : {8, 64, 512}) {
      const Tokens::Means means = tokens.simulate(batch, batch > 100 ? 200 : 1000);
      EXPECT_NEAR(expected_imbalance(pi, batch), means.imbalance, 0.06 * means.imbalance)
          << c.experts << "/" << c.top_k << " zipf " << c.exponent << " batch " << batch;
      EXPECT_NEAR(expected_touched(pi, batch), means.touched, 0.02 * means.touched);
    }
  }
}

TEST(ClosedForms, ExactWhereOneKnowsTheAnswer) {
  // One expert takes all: the hottest has B picks, the mean B / 4.
  EXPECT_NEAR(expected_imbalance(std::vector<double>{1, 0, 0, 0}, 10), 4, 1e-12);
  // One token, one pick of two even experts: the hottest has one pick. As independent experts the
  // chance that neither has one is not excluded: 1 - 1/4, over the mean 1/2.
  EXPECT_NEAR(expected_imbalance(std::vector<double>{0.5, 0.5}, 1), 1.5, 1e-12);
  EXPECT_DOUBLE_EQ(imbalance_floor(std::vector<double>{1, 0.5, 0.25, 0.25}), 2);
  EXPECT_EQ(expected_imbalance(std::vector<double>{0, 0}, 4), 0);
  // Large batches come down to the floor.
  const std::vector<double> pi{0.5, 0.25, 0.25};
  EXPECT_NEAR(expected_imbalance(pi, 200000), imbalance_floor(pi), 0.01);
}

}  // namespace
}  // namespace switchyard::moe
