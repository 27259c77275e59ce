// SPDX-License-Identifier: Apache-2.0
// Token choice against the naive router of tests/cases/route.h over every kind of spec, and the rules at the edges.
#include "moe/route/token_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "cases/route.h"
#include "moe/select_run.h"

namespace switchyard::moe {
namespace {

using Experts = std::vector<int32_t>;

// Every combination of score, weights, bias and limit that means something, for E experts.
std::vector<RouterSpec> all_specs(int num_experts) {
  std::vector<RouterSpec> specs;
  for (const int top_k : {1, 2, 4, 8, num_experts}) {
    for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
      for (const Weigh weigh : {Weigh::raw, Weigh::renormalize, Weigh::softmax_after_top_k}) {
        for (const bool bias : {false, true}) {
          for (const int limit : {0, 1, 2, 3}) {  // none, max, sum of two, devices
            RouterSpec spec{.num_experts = num_experts, .top_k = top_k, .score = score};
            spec.weigh = weigh;
            spec.selection_bias = bias;
            if (limit == 1 || limit == 2) spec.num_groups = 4, spec.top_groups = 2;
            if (limit == 2) spec.group_score = GroupScore::sum_top_2;
            if (limit == 3) spec.num_devices = 8, spec.max_devices = 3;
            if (check_token_choice(spec).ok()) specs.push_back(spec);
          }
        }
      }
    }
  }
  return specs;
}

void expect_naive(const RouterSpec& spec, const std::vector<float>& logits, const SelectInput& in) {
  const Picks found = select_picks(spec, logits, in);
  const auto num_experts = static_cast<size_t>(spec.num_experts);
  const auto k = static_cast<size_t>(spec.top_k);
  int64_t unusable_rows = 0;
  for (size_t t = 0; t * num_experts < logits.size(); ++t) {
    SCOPED_TRACE(testing::Message() << "row " << t);
    const std::span<const float> z(&logits[t * num_experts], num_experts);
    const auto row = cases::naive_token_choice(spec, z, in.bias, in.device_of);
    unusable_rows += row.usable ? 0 : 1;
    ASSERT_EQ(Experts(&found.expert[t * k], &found.expert[t * k] + k), row.expert);
    ASSERT_TRUE(cases::weights_agree(spec, z, row, &found.weight[t * k]));
  }
  EXPECT_EQ(found.unusable_rows, unusable_rows);
}

TEST(TokenChoice, IsTheNaiveRouterForEverySpec) {
  for (const int num_experts : {8, 64, 256}) {
    const std::vector<float> usual = random_logits(int64_t{23} * num_experts, 3);
    const std::vector<float> bias = random_logits(num_experts, 4, 0.2f);
    std::vector<int32_t> device_of;  // eight devices in turn, as no equal run has it
    for (int e = 0; e < num_experts; ++e) device_of.push_back(e * 5 % 8);
    int number = 0;
    for (const RouterSpec& spec : all_specs(num_experts)) {
      SCOPED_TRACE(testing::Message() << "E " << num_experts << " spec " << number++);
      SelectInput in;
      in.bias = bias.data();
      expect_naive(spec, usual, in);
      in.device_of = device_of.data();
      expect_naive(spec, usual, in);
      expect_naive(spec, awkward_logits(29, num_experts, 5), in);
      if (HasFailure()) return;
    }
  }
}

TEST(TokenChoice, ShapesOfTheDivisor) {
  const std::vector<float> logits = random_logits(31 * 16, 6);
  const std::vector<float> bias(16, 0.0f);
  SelectInput in;
  in.bias = bias.data();
  for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
    RouterSpec spec{.num_experts = 16, .top_k = 4, .score = score, .weigh = Weigh::renormalize};
    spec.scale = 2.5f;
    for (const float p : {1.0f, 2.0f, 3.5f, 40.0f}) {
      spec.norm_order = p;
      spec.renormalize_epsilon = 0;
      expect_naive(spec, logits, in);
      spec.renormalize_epsilon = 0.25f;
      expect_naive(spec, logits, in);
      spec.renormalize_minimum = 0.9f;
      expect_naive(spec, logits, in);
    }
  }
}

TEST(TokenChoice, TiesGoToTheLowerExpert) {
  const RouterSpec spec{.num_experts = 5, .top_k = 3};
  EXPECT_EQ(select_picks(spec, {1, 2, 2, 1, 2}).expert, (Experts{1, 2, 4}));
  EXPECT_EQ(select_picks({.num_experts = 8, .top_k = 2}, std::vector<float>(8, 0.5f)).expert,
            (Experts{0, 1}));
}

TEST(TokenChoice, TiedGroupsGoToTheLowerGroup) {
  RouterSpec spec{.num_experts = 8, .top_k = 2, .num_groups = 4, .top_groups = 2};
  EXPECT_EQ(select_picks(spec, {1, 0, 0, 1, 1, 0, 2, 0}).expert, (Experts{6, 0}));
  spec.group_score = GroupScore::sum_top_2;  // sums differ where the best are equal
  const std::vector<float> logits = {3, 0, 2.5f, 2, 3, -1, 0, 0};
  spec.score = Score::sqrt_softplus;
  spec.top_groups = 1;
  EXPECT_EQ(select_picks(spec, logits).expert, (Experts{2, 3}));
}

TEST(TokenChoice, BiasSteersSelectionAndNeverTheWeight) {
  RouterSpec spec{.num_experts = 4, .top_k = 2, .score = Score::sigmoid, .selection_bias = true};
  const std::vector<float> logits = {2, 1, 0, -1}, bias = {0, 0, 0, 5};
  SelectInput in;
  in.bias = bias.data();
  const Picks picks = select_picks(spec, logits, in);
  EXPECT_EQ(picks.expert, (Experts{3, 0}));
  EXPECT_FLOAT_EQ(picks.weight[0], 0.26894143f);
  EXPECT_FLOAT_EQ(picks.weight[1], 0.88079708f);
}

TEST(TokenChoice, BiasOfMinusInfinityPicksLastAndOnce) {
  RouterSpec spec{.num_experts = 8, .top_k = 3, .score = Score::sigmoid, .selection_bias = true};
  std::vector<float> bias(8, -kInf);
  bias[2] = 0;
  SelectInput in;
  in.bias = bias.data();
  const Picks picks = select_picks(spec, std::vector<float>(8, 0.0f), in);
  EXPECT_EQ(picks.expert, (Experts{2, 0, 1}));
  EXPECT_EQ(picks.weight, (std::vector<float>{0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(picks.unusable_rows, 0);
}

TEST(TokenChoice, LimitsHoldWhenExpertsInsideAreMasked) {
  // The best group has one expert with a score and one without; nobody outside may replace it.
  const RouterSpec spec{.num_experts = 6, .top_k = 2, .num_groups = 3, .top_groups = 1};
  EXPECT_EQ(select_picks(spec, {1, 1, 0, 0, 9, -kInf}).expert, (Experts{4, 5}));
}

TEST(TokenChoice, DevicesAreThoseOfTheMap) {
  RouterSpec spec{.num_experts = 6, .top_k = 2, .num_devices = 3, .max_devices = 1};
  const std::vector<float> logits = {5, 0, 1, 4, 2, 3};
  EXPECT_EQ(select_picks(spec, logits).expert, (Experts{0, 1}));
  const Experts device_of = {0, 1, 2, 2, 1, 0};
  SelectInput in;
  in.device_of = device_of.data();
  EXPECT_EQ(select_picks(spec, logits, in).expert, (Experts{0, 5}));
}

TEST(TokenChoice, SoftmaxOverThePicksIsRenormalization) {
  const std::vector<float> logits = {0.5f, -1, 3, 2.5f, 0, 1};
  RouterSpec spec{.num_experts = 6, .top_k = 3, .weigh = Weigh::renormalize};
  const Picks renormalized = select_picks(spec, logits);
  spec.weigh = Weigh::softmax_after_top_k;
  EXPECT_EQ(select_picks(spec, logits).weight, renormalized.weight);
}

TEST(TokenChoice, UnusableRowsWeighNothingSpareOthersAndAreCounted) {
  const RouterSpec spec{.num_experts = 3, .top_k = 2, .weigh = Weigh::renormalize};
  const Picks picks = select_picks(spec, {1, kNan, 2, 1, 0, 2, 0, kInf, 0, -kInf, -kInf, -kInf});
  EXPECT_EQ(picks.expert, (Experts{0, 1, 2, 0, 0, 1, 0, 1}));
  EXPECT_NEAR(picks.weight[2] + picks.weight[3], 1, 1e-6);
  for (const size_t i : {0, 1, 4, 5, 6, 7}) EXPECT_EQ(picks.weight[i], 0) << i;
  EXPECT_EQ(picks.unusable_rows, 3);
  const Picks none = select_picks({.num_experts = 8, .top_k = 4}, std::vector<float>(8, kNan));
  EXPECT_EQ(none.expert, (Experts{0, 1, 2, 3}));
  EXPECT_EQ(none.weight, std::vector<float>(4, 0.0f));
}

TEST(TokenChoice, MaskedExpertsWeighNothing) {
  const Picks picks = select_picks({.num_experts = 4, .top_k = 2}, {-kInf, 1, -kInf, -kInf});
  EXPECT_EQ(picks.expert, (Experts{1, 0}));
  EXPECT_EQ(picks.weight, (std::vector<float>{1, 0}));
}

TEST(TokenChoice, ScoresThatVanishWeighNothing) {
  RouterSpec spec{.num_experts = 3, .top_k = 2, .score = Score::sigmoid};
  spec.weigh = Weigh::renormalize;
  const Picks picks = select_picks(spec, {-300, -200, -250});
  EXPECT_EQ(picks.expert, (Experts{1, 2}));
  EXPECT_EQ(picks.weight, (std::vector<float>{0, 0}));
}

Code code_of(const Status& status) { return status.ok() ? Code::internal : status.error().code; }

TEST(RouterSpec, RefusesWhatMeansNothingNamingTheRule) {
  const RouterSpec good{.num_experts = 8, .top_k = 2};
  ASSERT_TRUE(check_token_choice(good).ok());
  const auto refuses = [&](const char* rule, auto&& change) {
    RouterSpec spec = good;
    change(spec);
    const Status status = check_token_choice(spec);
    ASSERT_EQ(code_of(status), Code::bad_request) << rule;
    EXPECT_NE(status.error().message.find(rule), std::string::npos) << status.error().message;
  };
  refuses("num_experts", [](RouterSpec& s) { s.num_experts = 0; });
  refuses("num_experts", [](RouterSpec& s) { s.num_experts = kMaxExperts + 1; });
  refuses("1 to num_experts", [](RouterSpec& s) { s.top_k = 9; });
  refuses("1 to num_experts", [](RouterSpec& s) { s.top_k = 0; });
  refuses("no selector", [](RouterSpec& s) { s.selector = ""; });
  refuses("divide", [](RouterSpec& s) { s.num_groups = 3; });
  refuses("divide", [](RouterSpec& s) { s.num_groups = 0; });
  refuses("top_groups is 5", [](RouterSpec& s) { s.num_groups = 4, s.top_groups = 5; });
  refuses("hold only 1", [](RouterSpec& s) { s.num_groups = 8, s.top_groups = 1; });
  refuses("one each", [](RouterSpec& s) {
    s.num_groups = 8, s.top_groups = 2, s.group_score = GroupScore::sum_top_2;
  });
  refuses("max_devices", [](RouterSpec& s) { s.max_devices = -1; });
  refuses("max_devices is 2", [](RouterSpec& s) { s.max_devices = 2; });
  refuses("divide", [](RouterSpec& s) { s.num_devices = 5, s.max_devices = 2; });
  refuses("hold only 1", [](RouterSpec& s) { s.num_devices = 8, s.max_devices = 1; });
  refuses("one kind of limit", [](RouterSpec& s) {
    s.num_groups = 2, s.top_groups = 2, s.num_devices = 2, s.max_devices = 1;
  });
  refuses("renormalize_epsilon", [](RouterSpec& s) { s.renormalize_epsilon = -1; });
  refuses("not renormalized", [](RouterSpec& s) { s.renormalize_epsilon = 1e-20f; });
  refuses("not renormalized", [](RouterSpec& s) { s.norm_order = 2; });
  refuses("norm_order", [](RouterSpec& s) { s.norm_order = 0.5f; });
  refuses("norm_order", [](RouterSpec& s) { s.norm_order = kInf; });
  refuses("renormalize_minimum", [](RouterSpec& s) { s.renormalize_minimum = kNan; });
  refuses("scale", [](RouterSpec& s) { s.scale = kInf; });
  refuses("noise", [](RouterSpec& s) { s.noise = -1; });
  refuses("jitter", [](RouterSpec& s) { s.jitter = kNan; });
  refuses("softmax score",
          [](RouterSpec& s) { s.weigh = Weigh::softmax_after_top_k, s.score = Score::sigmoid; });
  refuses("logits alone",
          [](RouterSpec& s) { s.weigh = Weigh::softmax_after_top_k, s.selection_bias = true; });
  refuses("capacity_factor", [](RouterSpec& s) { s.capacity_factor = -1; });
}

TEST(RouterSpec, TokenChoiceLeavesChanceToOthers) {
  RouterSpec spec{.num_experts = 8, .top_k = 2};
  spec.noise = 1;
  EXPECT_EQ(code_of(check_token_choice(spec)), Code::unsupported);
  spec.noise = 0;
  spec.jitter = 0.01f;
  EXPECT_EQ(code_of(check_token_choice(spec)), Code::unsupported);
  spec.jitter = 0;
  spec.random_second = true;
  EXPECT_EQ(code_of(check_token_choice(spec)), Code::unsupported);
}

}  // namespace
}  // namespace switchyard::moe
