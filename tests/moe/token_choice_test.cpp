// SPDX-License-Identifier: Apache-2.0
// Token choice against a straightforward formula in double, and the rules at the edges.
#include "moe/route/token_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::moe {
namespace {

struct Picks {
  std::vector<int32_t> expert;
  std::vector<float> weight;
};

Picks choose(const RouterSpec& spec, const std::vector<float>& logits, int threads = 1) {
  const auto tokens = static_cast<int64_t>(logits.size()) / spec.num_experts;
  Picks picks{std::vector<int32_t>(tokens * spec.top_k), std::vector<float>(tokens * spec.top_k)};
  Pool pool({.num_threads = threads, .pin = false});
  token_choice(spec, logits.data(), tokens, picks.expert.data(), picks.weight.data(),
               Stream({}, pool));
  return picks;
}

// softmax over all experts in double, stable sort by falling score, then the weights as the spec
// says.
Picks expected(const RouterSpec& spec, const std::vector<float>& logits) {
  Picks picks;
  for (size_t at = 0; at < logits.size(); at += spec.num_experts) {
    std::vector<int32_t> order(spec.num_experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[at + a] > logits[at + b]; });
    double all = 0, picked = 0;
    for (int e = 0; e < spec.num_experts; ++e) all += std::exp(double{logits[at + e]});
    for (int i = 0; i < spec.top_k; ++i) picked += std::exp(double{logits[at + order[i]]});
    for (int i = 0; i < spec.top_k; ++i) {
      const double score = std::exp(double{logits[at + order[i]]});
      picks.expert.push_back(order[i]);
      picks.weight.push_back(static_cast<float>(double{spec.scale} * score /
                                                (spec.weigh == Weigh::raw ? all : picked)));
    }
  }
  return picks;
}

TEST(TokenChoice, MatchesTheFormula) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  for (const int experts : {1, 2, 7, 8, 64, 256}) {
    for (const Weigh weigh : {Weigh::raw, Weigh::renormalize, Weigh::softmax_after_top_k}) {
      const RouterSpec spec{
          .num_experts = experts, .top_k = std::min(experts, 4), .weigh = weigh, .scale = 1.5f};
      std::vector<float> logits(37 * experts);
      for (float& z : logits) z = normal(random);
      const Picks found = choose(spec, logits), formula = expected(spec, logits);
      EXPECT_EQ(found.expert, formula.expert);
      for (size_t i = 0; i < found.weight.size(); ++i) {
        EXPECT_NEAR(found.weight[i], formula.weight[i], 2e-6) << experts << " pick " << i;
      }
    }
  }
}

TEST(TokenChoice, TiesGoToTheLowerExpert) {
  const RouterSpec spec{.num_experts = 5, .top_k = 3};
  EXPECT_EQ(choose(spec, {1, 2, 2, 1, 2}).expert, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(choose(spec, {0, 0, 0, 0, 0}).expert, (std::vector<int32_t>{0, 1, 2}));
}

TEST(TokenChoice, SoftmaxOverThePicksIsRenormalization) {
  const std::vector<float> logits = {0.5f, -1, 3, 2.5f, 0, 1};
  RouterSpec spec{.num_experts = 6, .top_k = 3, .weigh = Weigh::renormalize};
  const Picks renormalized = choose(spec, logits);
  spec.weigh = Weigh::softmax_after_top_k;
  EXPECT_EQ(choose(spec, logits).weight, renormalized.weight);
}

TEST(TokenChoice, NanRowWeighsNothingAndSparesOthers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const RouterSpec spec{.num_experts = 3, .top_k = 2, .weigh = Weigh::renormalize};
  const Picks picks = choose(spec, {1, nan, 2, 1, 0, 2});
  EXPECT_EQ(picks.expert, (std::vector<int32_t>{0, 1, 2, 0}));
  EXPECT_EQ(picks.weight[0], 0);
  EXPECT_EQ(picks.weight[1], 0);
  EXPECT_NEAR(picks.weight[2] + picks.weight[3], 1, 1e-6);
}

TEST(TokenChoice, MaskedExpertsWeighNothing) {
  const float inf = std::numeric_limits<float>::infinity();
  const RouterSpec spec{.num_experts = 4, .top_k = 2};
  const Picks picks = choose(spec, {-inf, 1, -inf, -inf});
  EXPECT_EQ(picks.expert[0], 1);
  EXPECT_EQ(picks.weight[0], 1);
  EXPECT_EQ(picks.weight[1], 0);
  EXPECT_EQ(choose(spec, {-inf, -inf, -inf, -inf}).weight, (std::vector<float>{0, 0}));
}

TEST(TokenChoice, ThreadsChangeNothing) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const RouterSpec spec{.num_experts = 128, .top_k = 8};
  std::vector<float> logits(777 * 128);
  for (float& z : logits) z = normal(random);
  const Picks one = choose(spec, logits, 1), three = choose(spec, logits, 3);
  EXPECT_EQ(one.expert, three.expert);
  EXPECT_EQ(one.weight, three.weight);
}

TEST(RouterSpec, RefusesWhatMeansNothing) {
  const auto code = [](RouterSpec spec) {
    const Status status = check_token_choice(spec);
    return status.ok() ? Code::internal : status.error().code;
  };
  const RouterSpec good{.num_experts = 8, .top_k = 2};
  ASSERT_TRUE(check_token_choice(good).ok());
  RouterSpec spec = good;
  spec.top_k = 9;
  EXPECT_EQ(code(spec), Code::bad_request);
  spec = good;
  spec.num_experts = 0;
  EXPECT_EQ(code(spec), Code::bad_request);
  spec = good;
  spec.num_groups = 3;
  EXPECT_EQ(code(spec), Code::bad_request);
  spec = good;
  spec.capacity_factor = -1;
  EXPECT_EQ(code(spec), Code::bad_request);
  spec = good;
  spec.score = Score::sigmoid;
  EXPECT_EQ(code(spec), Code::unsupported);
  spec = good;
  spec.selection_bias = true;
  EXPECT_EQ(code(spec), Code::unsupported);
}

}  // namespace
}  // namespace switchyard::moe
