// SPDX-License-Identifier: Apache-2.0
// The router around its selector: bias, devices, counts, random numbers; and the rule that trains a selection bias.
#include "moe/route/router.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "moe/route/selection_bias.h"
#include "moe/select_run.h"

namespace switchyard::moe {
namespace {

constexpr int kExperts = 8;

// A router whose gate is the identity, so that x are its logits.
Router identity_router(const RouterSpec& spec, const Limits& limits) {
  Router router = Router::create(spec, spec.num_experts, limits).value();
  std::vector<float> identity(static_cast<size_t>(spec.num_experts) * spec.num_experts, 0.0f);
  for (int e = 0; e < spec.num_experts; ++e) {
    identity[static_cast<size_t>(e) * (spec.num_experts + 1)] = 1;
  }
  router.gate().pack(0, TensorView::of(identity.data(), {spec.num_experts, spec.num_experts}));
  return router;
}

struct Routed {
  std::vector<int32_t> expert, load;
  std::vector<float> weight;
  RouteCounts counts;
};

Routed run(const Router& router, const std::vector<float>& x, const Limits& limits,
           uint64_t first_token = 0) {
  Pool pool({.num_threads = limits.num_threads, .pin = false});
  const Stream stream({}, pool);
  Arena arena = Arena::create(router.room(limits)).value();
  const auto tokens = static_cast<int64_t>(x.size()) / router.spec().num_experts;
  const Routing routing = router.route(
      x.data(), tokens, {.stream = stream, .arena = arena, .first_token = first_token});
  EXPECT_EQ(routing.expert.shape[1], router.columns());
  const auto copy = [](const auto* from, int64_t count) { return std::vector(from, from + count); };
  return {copy(routing.expert.as<int32_t>(), tokens * router.columns()),
          copy(routing.load.as<int32_t>(), router.spec().num_experts),
          copy(routing.weight.as<float>(), tokens * router.columns()), routing.counts};
}

constexpr Limits kLimits{16, 1};

TEST(Router, AppliesTheBiasThatALoaderSets) {
  const RouterSpec spec{
      .num_experts = kExperts, .top_k = 2, .score = Score::sigmoid, .selection_bias = true};
  Router router = identity_router(spec, kLimits);
  const std::vector<float> x = {8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(run(router, x, kLimits).expert, (std::vector<int32_t>{0, 1}));  // zeros until set
  ASSERT_TRUE(router.set_selection_bias(std::vector<float>{0, -1, 0, 0, 0, 0, 0, 1}).ok());
  EXPECT_EQ(run(router, x, kLimits).expert, (std::vector<int32_t>{7, 0}));
  router.selection_bias()[6] = 3;
  EXPECT_EQ(run(router, x, kLimits).expert, (std::vector<int32_t>{6, 7}));
}

TEST(Router, RefusesABiasThatCannotBe) {
  const RouterSpec spec{.num_experts = kExperts, .top_k = 2, .selection_bias = true};
  Router router = identity_router(spec, kLimits);
  std::vector<float> bias(kExperts, 0.0f);
  bias[3] = kNan;
  const Status nan = router.set_selection_bias(bias);
  ASSERT_FALSE(nan.ok());
  EXPECT_EQ(nan.error().code, Code::bad_file);
  EXPECT_NE(nan.error().message.find("expert 3"), std::string::npos);
  bias[3] = -kInf;
  EXPECT_TRUE(router.set_selection_bias(bias).ok());
  EXPECT_FALSE(router.set_selection_bias(std::vector<float>(7, 0.0f)).ok());
  Router without = identity_router({.num_experts = kExperts, .top_k = 2}, kLimits);
  EXPECT_TRUE(without.selection_bias().empty());
  EXPECT_FALSE(without.set_selection_bias(bias).ok());
}

TEST(Router, DevicesComeWithTheModel) {
  RouterSpec spec{.num_experts = kExperts, .top_k = 2, .num_devices = 4, .max_devices = 1};
  Router router = identity_router(spec, kLimits);
  const std::vector<float> x = {8, 1, 2, 7, 6, 5, 4, 3};
  EXPECT_EQ(run(router, x, kLimits).expert, (std::vector<int32_t>{0, 1}));
  ASSERT_TRUE(router.set_devices(std::vector<int32_t>{0, 1, 2, 0, 3, 1, 2, 3}).ok());
  EXPECT_EQ(run(router, x, kLimits).expert, (std::vector<int32_t>{0, 3}));
  EXPECT_FALSE(router.set_devices(std::vector<int32_t>(kExperts, 4)).ok());
  EXPECT_FALSE(router.set_devices(std::vector<int32_t>(3, 0)).ok());
  const Status few = router.set_devices(std::vector<int32_t>{0, 0, 0, 0, 0, 1, 2, 3});
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.error().message.find("hold only 1"), std::string::npos) << few.error().message;
  Router free = identity_router({.num_experts = kExperts, .top_k = 2}, kLimits);
  EXPECT_FALSE(free.set_devices(std::vector<int32_t>(kExperts, 0)).ok());
}

TEST(Router, CountsUnusableRows) {
  const Router router = identity_router({.num_experts = 2, .top_k = 1}, kLimits);
  EXPECT_EQ(run(router, {1, 0, kNan, 0, 0, 1}, kLimits).counts.unusable_rows, 1);
}

TEST(Router, ExpertChoiceHasAColumnForEveryExpert) {
  const RouterSpec spec{.num_experts = kExperts,
                        .top_k = 2,
                        .selector = "expert_choice",
                        .trained_across_tokens = true};
  const Router router = identity_router(spec, kLimits);
  EXPECT_EQ(router.columns(), kExperts);
  for (const int64_t tokens : {1, 3, 8, 16}) {
    const Routed routed = run(router, random_logits(tokens * kExperts, 3), kLimits);
    int64_t picks = 0;
    for (const int32_t load : routed.load) picks += load;
    EXPECT_LE(picks, router.most_picks(tokens));
    EXPECT_EQ(picks, kExperts * ((tokens * 2 + kExperts - 1) / kExperts));
  }
}

TEST(Router, DrawsByTheNumberOfTheToken) {
  RouterSpec spec{.num_experts = kExperts,
                  .top_k = 2,
                  .selector = "gshard_top_2",
                  .weigh = Weigh::softmax_after_top_k};
  spec.random_second = true;
  Router router = identity_router(spec, kLimits);
  router.set_seed(5);
  const std::vector<float> x = random_logits(16 * kExperts, 8);
  const Routed whole = run(router, x, kLimits, 100);
  const Routed tail = run(router, {x.begin() + 6 * kExperts, x.end()}, kLimits, 106);
  EXPECT_EQ(tail.expert, std::vector<int32_t>(whole.expert.begin() + 12, whole.expert.end()));
  router.set_seed(6);
  EXPECT_NE(run(router, x, kLimits, 100).expert, whole.expert);
}

TEST(SelectionBias, MovesAgainstTheLoadByTheSignAlone) {
  std::vector<float> bias = {0, 0, 0, 0.5f};
  update_selection_bias(bias, std::vector<int64_t>{100, 0, 14, 38}, 0.25f);  // the mean is 38
  EXPECT_EQ(bias, (std::vector<float>{-0.25f, 0.25f, 0.25f, 0.5f}));
  update_selection_bias(bias, std::vector<int64_t>{7, 7, 7, 7}, 0.25f);
  EXPECT_EQ(bias, (std::vector<float>{-0.25f, 0.25f, 0.25f, 0.5f}));
}

TEST(SelectionBias, BalancesACollapsedRouter) {
  const RouterSpec spec{
      .num_experts = kExperts, .top_k = 2, .score = Score::sigmoid, .selection_bias = true};
  std::vector<float> logits = random_logits(512 * kExperts, 10, 0.5f);
  for (size_t i = 0; i < logits.size(); i += kExperts) logits[i] += 3;  // everybody wants expert 0
  std::vector<float> bias(kExperts, 0.0f);
  const auto loads = [&] {
    SelectInput in;
    in.bias = bias.data();
    std::vector<int64_t> load(kExperts, 0);
    for (const int32_t e : select_picks(spec, logits, in).expert) ++load[static_cast<size_t>(e)];
    return load;
  };
  const auto imbalance = [](const std::vector<int64_t>& load) {
    return static_cast<double>(*std::max_element(load.begin(), load.end())) /
           (512 * 2.0 / kExperts);
  };
  EXPECT_GT(imbalance(loads()), 3.5);
  for (int step = 0; step < 300; ++step) update_selection_bias(bias, loads(), 0.002f);
  EXPECT_LT(imbalance(loads()), 1.1);
}

}  // namespace
}  // namespace switchyard::moe
