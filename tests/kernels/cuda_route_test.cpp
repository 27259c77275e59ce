// SPDX-License-Identifier: Apache-2.0
// Routing on the device against a sort. Needs a CUDA device; without one every test says that it was skipped.
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda_route_oracle.h"

namespace switchyard {
namespace {

using testing::cuda_error;
using testing::expect_picks;
using testing::expect_rows_follow_picks;

class CudaRoute : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (testing::cuda_sm(why) == 0) GTEST_SKIP() << "no CUDA device: " << why;
  }
};

struct RouteCase {
  const char* name;
  RouteRule rule;
  bool bias;
};

std::vector<RouteCase> route_cases() {
  using Score = RouteRule::Score;
  using Weigh = RouteRule::Weigh;
  using GroupScore = RouteRule::GroupScore;
  return {
      {"softmax, raw", {128, 8}, false},
      {"softmax, renormalized", {128, 8, Score::softmax, Weigh::renormalize}, false},
      {"softmax after top-k", {32, 4, Score::softmax, Weigh::softmax_after_top_k}, false},
      {"one expert", {1, 1}, false},
      {"all experts are picked", {7, 7, Score::softmax, Weigh::raw}, false},
      {"odd count of experts", {33, 3, Score::softmax, Weigh::renormalize}, false},
      {"scale", {64, 6, Score::softmax, Weigh::raw, GroupScore::max, 1, 1, 0, 16}, false},
      {"sigmoid, raw", {64, 6, Score::sigmoid, Weigh::raw}, false},
      {"sigmoid, bias", {160, 8, Score::sigmoid, Weigh::renormalize}, true},
      {"softmax, bias", {64, 6, Score::softmax, Weigh::renormalize}, true},
      {"root of softplus", {256, 8, Score::sqrt_softplus, Weigh::renormalize}, true},
      {"groups by their best",
       {160, 6, Score::softmax, Weigh::raw, GroupScore::max, 8, 3, 0, 16},
       false},
      {"groups by their two best",
       {256, 8, Score::sigmoid, Weigh::renormalize, GroupScore::sum_top_2, 8, 4, 1e-20f, 2.5f},
       true},
      {"512 experts, ten picks", {512, 10, Score::softmax, Weigh::renormalize}, false},
      {"384 experts", {384, 8, Score::sigmoid, Weigh::renormalize}, true},
      {"epsilon", {64, 4, Score::softmax, Weigh::renormalize, GroupScore::max, 1, 1, 0.5f}, false},
  };
}

TEST_F(CudaRoute, RoutingIsThatOfASort) {
  std::mt19937 random(5);
  for (const RouteCase& which : route_cases()) {
    for (const int64_t tokens : {0, 1, 31, 33, 64, 65, 1000, 5000}) {
      SCOPED_TRACE(std::string(which.name) + ", " + std::to_string(tokens) + " tokens");
      const RouteRule& rule = which.rule;
      const auto logits = testing::random_logits(cases::Popularity::uniform, tokens, rule.experts,
                                                 rule.top_k, random);
      std::vector<float> bias(which.bias ? rule.experts : 0);
      for (float& value : bias) value = std::uniform_real_distribution<float>(-0.2f, 0.2f)(random);
      const testing::DeviceArray<float> on_device(logits), bias_on_device(bias);
      testing::DeviceBytes workspace(MoeRoute::workspace_bytes({rule, tokens}));
      testing::RoutingArrays routing(tokens, rule);
      ASSERT_EQ(MoeRoute::refusal({rule, tokens}), nullptr);
      MoeRoute::Args args;
      args.logits = on_device.data();
      args.bias = which.bias ? bias_on_device.data() : nullptr;
      args.tokens = tokens;
      args.routing = routing.view();
      args.workspace = workspace.data();
      MoeRoute::run({rule, tokens}, args, nullptr);
      ASSERT_EQ(cuda_error(), "");
      expect_picks(routing, rule, logits, bias, tokens, tokens);
      expect_rows_follow_picks(routing, rule, tokens);
      EXPECT_EQ(routing.unusable.host()[0], 0);
      EXPECT_TRUE(routing.guards_are_intact() && workspace.guards_are_intact());
    }
  }
}

TEST_F(CudaRoute, TiesGoToTheLowerExpertAndUnusableRowsAreCounted) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const int experts = 8;
  const std::vector<float> logits = {1,          3,          3,          2,
                                     3,          0,          0,          0,  // ties
                                     0,          0,          -0.0f,      -0.0f,
                                     0,          0,          0,          0,  // zeros
                                     1,          2,          kNan,       4,
                                     5,          6,          7,          8,  // unusable
                                     1,          2,          kInfinity,  4,
                                     5,          6,          7,          8,  // unusable
                                     -1,         -2,         -kInfinity, -kInfinity,
                                     -kInfinity, -kInfinity, -kInfinity, -kInfinity,  // masked
                                     -kInfinity, -kInfinity, -kInfinity, -kInfinity,
                                     -kInfinity, -kInfinity, -kInfinity, -kInfinity};  // unusable
  const std::vector<int32_t> expected = {1, 2, 4, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
  const int64_t tokens = 6;
  const RouteRule rule = {experts, 3, RouteRule::Score::softmax, RouteRule::Weigh::renormalize};
  const testing::DeviceArray<float> on_device(logits);
  testing::DeviceBytes workspace(MoeRoute::workspace_bytes({rule, tokens}));
  testing::RoutingArrays routing(tokens, rule);
  MoeRoute::Args args;
  args.logits = on_device.data();
  args.tokens = tokens;
  args.routing = routing.view();
  args.workspace = workspace.data();
  MoeRoute::run({rule, tokens}, args, nullptr);
  ASSERT_EQ(cuda_error(), "");
  EXPECT_EQ(routing.expert.host(), expected);
  const auto weight = routing.weight.host();
  for (const int t : {2, 3, 5}) {
    for (int k = 0; k < 3; ++k) EXPECT_EQ(weight[t * 3 + k], 0) << t;
  }
  EXPECT_NEAR(weight[0], 1.0 / 3, 1e-6);
  EXPECT_EQ(weight[4 * 3 + 2], 0);
  EXPECT_EQ(routing.unusable.host()[0], 3);
  expect_rows_follow_picks(routing, rule, tokens);
}

}  // namespace
}  // namespace switchyard
