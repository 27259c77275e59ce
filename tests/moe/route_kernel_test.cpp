// SPDX-License-Identifier: Apache-2.0
// Every kernel of the route operation against the selector that defines it: the same picks bit for bit, the same
// weights but for rounding, on random, tied, extreme and unusable rows.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu_features.h"
#include "kernels/select.h"
#include "moe/select_run.h"

namespace switchyard::moe {
namespace {

Picks run_kernel(const Kernel<Route>& kernel, const RouterSpec& spec,
                 const std::vector<float>& logits, SelectInput in, int threads) {
  in.logits = logits.data();
  in.tokens = static_cast<int64_t>(logits.size()) / spec.num_experts;
  const auto picks = static_cast<size_t>(in.tokens) * spec.top_k;
  Picks found{std::vector<int32_t>(picks, -77), std::vector<float>(picks, kNan), -1};
  Pool pool({.num_threads = threads, .pin = false});
  const Route::Problem problem{spec, find_selector(spec.selector).value()->select};
  kernel.run(problem, {in, {found.expert.data(), found.weight.data()}, &found.unusable_rows}, {},
             Stream({}, pool));
  return found;
}

std::vector<RouterSpec> specs() {
  std::vector<RouterSpec> all;
  for (const int num_experts : {1, 2, 7, 8, 15, 16, 17, 32, 60, 64, 128, 257, kMaxExperts}) {
    for (const int top_k : {1, 2, 8, num_experts}) {
      if (top_k > num_experts || top_k > 512) continue;
      for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
        for (const Weigh weigh : {Weigh::raw, Weigh::renormalize, Weigh::softmax_after_top_k}) {
          for (const bool bias : {false, true}) {
            RouterSpec spec{.num_experts = num_experts, .top_k = top_k, .score = score};
            spec.weigh = weigh, spec.selection_bias = bias, spec.scale = 1.5f;
            if (weigh == Weigh::renormalize) spec.renormalize_epsilon = 1e-20f;
            if (find_selector("token_choice").value()->check(spec).ok()) all.push_back(spec);
          }
        }
      }
    }
  }
  return all;
}

void expect_same(const Picks& found, const Picks& wanted) {
  ASSERT_EQ(found.expert, wanted.expert);
  EXPECT_EQ(found.unusable_rows, wanted.unusable_rows);
  for (size_t i = 0; i < wanted.weight.size(); ++i) {
    ASSERT_NEAR(found.weight[i], wanted.weight[i], 1e-4f * wanted.weight[i] + 1e-36f) << i;
  }
}

TEST(RouteKernels, HaveThePicksOfTheSelector) {
  int entries = 0;
  for (const Kernel<Route>& kernel : kernels::table<Route>()) {
    if ((kernel.needs.cpu_features & ~cpu_features().usable) != 0) continue;
    SCOPED_TRACE(kernel.name);
    ++entries;
    for (const RouterSpec& spec : specs()) {
      ASSERT_EQ(kernel.accept({spec}).refused, nullptr);
      SCOPED_TRACE(testing::Message() << "E " << spec.num_experts << " K " << spec.top_k);
      std::vector<float> bias = random_logits(spec.num_experts, 1, 0.1f);
      bias[0] = -kInf;
      bias.back() = kNan;
      SelectInput in;
      if (spec.selection_bias) in.bias = bias.data();
      for (const std::vector<float>& logits : {random_logits(int64_t{9} * spec.num_experts, 2),
                                               awkward_logits(17, spec.num_experts, 3)}) {
        expect_same(run_kernel(kernel, spec, logits, in, 1), select_picks(spec, logits, in));
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(entries, 1);
}

TEST(RouteKernels, ThreadsChangeNothing) {
  const RouterSpec spec{.num_experts = 128, .top_k = 8, .weigh = Weigh::renormalize};
  const std::vector<float> logits = random_logits(777 * 128, 4);
  for (const Kernel<Route>& kernel : kernels::table<Route>()) {
    if ((kernel.needs.cpu_features & ~cpu_features().usable) != 0) continue;
    const Picks one = run_kernel(kernel, spec, logits, {}, 1);
    const Picks three = run_kernel(kernel, spec, logits, {}, 3);
    EXPECT_EQ(one.expert, three.expert);
    EXPECT_EQ(one.weight, three.weight);
  }
}

TEST(RouteKernels, RefuseLimitsAndOtherSelectors) {
  RouterSpec groups{.num_experts = 8, .top_k = 2, .num_groups = 4, .top_groups = 2};
  RouterSpec devices{.num_experts = 8, .top_k = 2, .num_devices = 4, .max_devices = 2};
  RouterSpec sums{.num_experts = 8,
                  .top_k = 2,
                  .score = Score::sigmoid,
                  .num_groups = 4,
                  .top_groups = 4,
                  .group_score = GroupScore::sum_top_2};
  RouterSpec mixer{.num_experts = 8, .top_k = 2, .selector = "sparsemixer"};
  for (const Kernel<Route>& kernel : kernels::table<Route>()) {
    const bool reference = &kernel == &kernels::table<Route>().back();
    for (const RouterSpec& spec : {groups, devices, sums, mixer}) {
      EXPECT_EQ(kernel.accept({spec}).refused == nullptr, reference) << kernel.name;
    }
  }
}

}  // namespace
}  // namespace switchyard::moe
