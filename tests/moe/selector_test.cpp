// SPDX-License-Identifier: Apache-2.0
// What every selector of the table promises, whatever the logits: walked over the table, so that a new line is tested
// as soon as it has specs here. And the rules of the selectors that are not token choice.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "moe/route/expert_choice.h"
#include "moe/route/noisy_top_k.h"
#include "moe/select_run.h"

namespace switchyard::moe {
namespace {

using Experts = std::vector<int32_t>;

std::vector<RouterSpec> specs_of(std::string_view selector) {
  const RouterSpec two{.num_experts = 16, .top_k = 2, .selector = selector};
  RouterSpec noisy = two, chance = two, near = two, experts = two, v3 = two, wide = two;
  noisy.weigh = chance.weigh = Weigh::softmax_after_top_k;
  noisy.noise = 1;
  chance.random_second = true;
  near.jitter = 0.01f;
  experts.trained_across_tokens = true;
  v3.score = Score::sigmoid, v3.weigh = Weigh::renormalize, v3.selection_bias = true;
  v3.num_groups = 4, v3.top_groups = 2, v3.group_score = GroupScore::sum_top_2;
  wide.num_experts = 257, wide.top_k = 9;
  RouterSpec wide_noisy = noisy, wide_experts = experts;
  wide_noisy.num_experts = 257, wide_noisy.top_k = 9;
  wide_experts.num_experts = 257, wide_experts.top_k = 9;
  RouterSpec wide_chance = chance, wide_near = near;
  wide_chance.num_experts = wide_near.num_experts = 257;
  if (selector == "token_choice") return {two, v3, wide};
  if (selector == "noisy_top_k") return {noisy, wide_noisy};
  if (selector == "gshard_top_2") return {chance, wide_chance};
  if (selector == "sparsemixer") return {near, wide_near};
  if (selector == "expert_choice") return {experts, wide_experts};
  return {};
}

// Calls test(spec, logits) for every selector, spec and kind of logits.
template <class Test>
void for_each_case(Test&& test) {
  for (const Selector& selector : selectors()) {
    const std::vector<RouterSpec> specs = specs_of(selector.name);
    ASSERT_FALSE(specs.empty()) << selector.name << " needs specs in this test";
    for (const RouterSpec& spec : specs) {
      SCOPED_TRACE(testing::Message() << selector.name << ", " << spec.num_experts << " experts");
      test(spec, random_logits(int64_t{67} * spec.num_experts, 1));
      test(spec, awkward_logits(67, spec.num_experts, 2));
    }
  }
}

SelectInput input_for(const RouterSpec& spec, const std::vector<float>& bias) {
  SelectInput in;
  in.random = {7, 2, 1000};
  if (spec.selection_bias) in.bias = bias.data();
  return in;
}

const std::vector<float> kBias = random_logits(16, 9, 0.1f);

TEST(Selectors, PickDistinctExpertsWithFiniteWeights) {
  for_each_case([](const RouterSpec& spec, const std::vector<float>& logits) {
    const Picks picks = select_picks(spec, logits, input_for(spec, kBias));
    const size_t columns = picks.expert.size() / (logits.size() / spec.num_experts);
    for (size_t at = 0; at < picks.expert.size(); at += columns) {
      std::vector<bool> used(static_cast<size_t>(spec.num_experts), false);
      for (size_t i = at; i < at + columns; ++i) {
        const int32_t e = picks.expert[i];
        ASSERT_TRUE(e >= -1 && e < spec.num_experts) << e;
        ASSERT_TRUE(std::isfinite(picks.weight[i]) && picks.weight[i] >= 0) << picks.weight[i];
        if (e < 0) {
          ASSERT_EQ(picks.weight[i], 0);
          continue;
        }
        ASSERT_FALSE(used[static_cast<size_t>(e)]) << "expert " << e << " twice";
        used[static_cast<size_t>(e)] = true;
      }
    }
  });
}

TEST(Selectors, ThreadsChangeNothing) {
  for_each_case([](const RouterSpec& spec, std::vector<float> logits) {
    while (logits.size() < 400000) logits.insert(logits.end(), logits.begin(), logits.end());
    const SelectInput in = input_for(spec, kBias);
    const Picks one = select_picks(spec, logits, in, 1), three = select_picks(spec, logits, in, 3);
    EXPECT_EQ(one.expert, three.expert);
    EXPECT_EQ(one.weight, three.weight);
    EXPECT_EQ(one.unusable_rows, three.unusable_rows);
  });
}

TEST(Selectors, CuttingTheBatchChangesNothingButForExpertChoice) {
  for_each_case([](const RouterSpec& spec, const std::vector<float>& logits) {
    if (spec.trained_across_tokens) return;
    SelectInput in = input_for(spec, kBias);
    const Picks whole = select_picks(spec, logits, in);
    const auto cut = logits.begin() + 20 * spec.num_experts;
    const Picks head = select_picks(spec, {logits.begin(), cut}, in);
    in.random.first_token += 20;
    const Picks tail = select_picks(spec, {cut, logits.end()}, in);
    Picks joined = head;
    joined.expert.insert(joined.expert.end(), tail.expert.begin(), tail.expert.end());
    joined.weight.insert(joined.weight.end(), tail.weight.begin(), tail.weight.end());
    EXPECT_EQ(joined.expert, whole.expert);
    EXPECT_EQ(joined.weight, whole.weight);
    EXPECT_EQ(head.unusable_rows + tail.unusable_rows, whole.unusable_rows);
  });
}

TEST(Selectors, CountUnusableRowsAndGiveThemNoWeight) {
  for_each_case([](const RouterSpec& spec, std::vector<float> logits) {
    for (float& z : logits) z = std::isfinite(z) ? z : 0.0f;
    const auto row = [&](size_t t) {
      return logits.begin() + static_cast<int64_t>(t) * spec.num_experts;
    };
    *row(0) = kNan;
    row(3)[spec.num_experts - 1] = kInf;
    std::fill(row(5), row(6), -kInf);
    const Picks picks = select_picks(spec, logits, input_for(spec, kBias));
    EXPECT_EQ(picks.unusable_rows, 3);
    const size_t columns = picks.weight.size() / (logits.size() / spec.num_experts);
    for (const size_t t : {0, 3, 5}) {
      for (size_t i = 0; i < columns; ++i) {
        EXPECT_EQ(picks.weight[t * columns + i], 0) << "row " << t;
      }
    }
  });
}

TEST(Selectors, UnknownNameListsTheKnown) {
  const auto found = find_selector("token_choise");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::unsupported);
  for (const Selector& selector : selectors()) {
    EXPECT_NE(found.error().message.find(selector.name), std::string::npos);
  }
}

Code code_of(std::string_view selector, RouterSpec spec) {
  spec.selector = selector;
  const Status status = find_selector(selector).value()->check(spec);
  return status.ok() ? Code::internal : status.error().code;
}

TEST(Selectors, RefuseWhatIsNotTheirs) {
  RouterSpec spec{.num_experts = 8, .top_k = 3, .weigh = Weigh::softmax_after_top_k};
  EXPECT_EQ(code_of("gshard_top_2", spec), Code::bad_request);
  spec.weigh = Weigh::raw;
  EXPECT_EQ(code_of("sparsemixer", spec), Code::bad_request);
  EXPECT_EQ(code_of("noisy_top_k", spec), Code::unsupported);
  spec.top_k = 2;
  EXPECT_EQ(code_of("gshard_top_2", spec), Code::unsupported);
  spec.selection_bias = true;
  EXPECT_EQ(code_of("sparsemixer", spec), Code::unsupported);
  spec.trained_across_tokens = true;
  EXPECT_EQ(code_of("expert_choice", spec), Code::unsupported);
}

TEST(Selectors, ExpertChoiceIsForModelsTrainedSo) {
  RouterSpec spec{.num_experts = 8, .top_k = 2, .selector = "expert_choice"};
  const Status status = find_selector("expert_choice").value()->check(spec);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::unsupported);
  EXPECT_NE(status.error().message.find("token by token"), std::string::npos);
  spec.trained_across_tokens = true;
  EXPECT_EQ(code_of("expert_choice", spec), Code::internal);
}

TEST(ExpertChoice, EveryExpertTakesItsCapacity) {
  for (const int64_t tokens : {1, 5, 16, 67}) {
    const RouterSpec spec = specs_of("expert_choice").front();
    const Picks picks = select_picks(spec, random_logits(tokens * 16, 4));
    std::vector<int64_t> load(16, 0);
    for (const int32_t e : picks.expert) {
      if (e >= 0) ++load[static_cast<size_t>(e)];
    }
    const int64_t capacity = (tokens * 2 + 15) / 16;
    EXPECT_EQ(expert_choice_capacity(spec, tokens), capacity);
    EXPECT_EQ(load, std::vector<int64_t>(16, capacity));
  }
}

TEST(ExpertChoice, TiesGoToTheLowerTokenAndUnusableRowsAreNotTaken) {
  const RouterSpec spec{
      .num_experts = 2, .top_k = 1, .selector = "expert_choice", .trained_across_tokens = true};
  const Picks tied = select_picks(spec, {0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(tied.expert, (Experts{0, 1, 0, 1, -1, -1, -1, -1}));
  EXPECT_EQ(tied.weight, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f, 0, 0, 0, 0}));
  const Picks spoiled = select_picks(spec, {kNan, 0, kNan, 0, kNan, 0, 0, 1});
  EXPECT_EQ(spoiled.expert, (Experts{-1, -1, -1, -1, -1, -1, 1, 0}));
  EXPECT_EQ(spoiled.unusable_rows, 3);
}

TEST(GShard, TheSecondStaysWithChanceTwiceItsWeight) {
  constexpr int kTokens = 20000;
  RouterSpec spec{.num_experts = 2, .top_k = 2, .selector = "gshard_top_2"};
  spec.weigh = Weigh::softmax_after_top_k;
  spec.random_second = true;
  for (const float second : {0.5f, 0.3f, 0.05f}) {
    std::vector<float> logits;
    for (int t = 0; t < kTokens; ++t) {
      logits.push_back(std::log(1 - second));
      logits.push_back(std::log(second));
    }
    const Picks picks = select_picks(spec, logits);
    double stayed = 0;
    for (size_t i = 1; i < picks.expert.size(); i += 2) stayed += picks.expert[i] >= 0 ? 1 : 0;
    const double chance = std::min(1.0, 2.0 * static_cast<double>(second));
    EXPECT_NEAR(stayed / kTokens, chance, 4 * std::sqrt(chance * (1 - chance) / kTokens) + 1e-3);
    EXPECT_NEAR(picks.weight[0], 1 - second, 1e-6);  // the first keeps its share
  }
}

TEST(SparseMixer, NearnessIsRelativeAndTheSecondRoundTestsTheLogitsAsTheyWere) {
  RouterSpec spec{.num_experts = 4, .top_k = 2, .selector = "sparsemixer"};
  spec.jitter = 0.01f;
  const Picks picks = select_picks(spec, {2, 1.99f, 1, 0.5f, 2, 1.5f, 1.49f, -1});
  EXPECT_EQ(picks.expert, (Experts{0, 1, 0, 1}));
  const float wanted[] = {0.5025f, 1, 1, 0.5025f};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(picks.weight[i], wanted[i], 1e-5) << i;
  // 0/0 counts as near: all zeros share, and so do three zeros without the first.
  const Picks zeros = select_picks(spec, {0, 0, 0, 0});
  EXPECT_NEAR(zeros.weight[0], 0.25, 1e-6);
  EXPECT_NEAR(zeros.weight[1], 1.0 / 3, 1e-6);
}

TEST(NoisyTopK, WithoutNoiseItIsTokenChoiceAndLoadCounts) {
  RouterSpec spec{.num_experts = 8, .top_k = 3, .selector = "noisy_top_k"};
  spec.weigh = Weigh::softmax_after_top_k;
  const std::vector<float> logits = random_logits(50 * 8, 6);
  const Picks found = select_picks(spec, logits);
  std::vector<double> load(8, 0), counted(8, 0);
  add_smooth_load(spec, {.logits = logits.data(), .tokens = 50}, load);
  for (const int32_t e : found.expert) counted[static_cast<size_t>(e)] += 1;
  EXPECT_EQ(load, counted);
  spec.selector = "token_choice";
  const Picks plain = select_picks(spec, logits);
  EXPECT_EQ(found.expert, plain.expert);
  EXPECT_EQ(found.weight, plain.weight);
}

TEST(NoisyTopK, LoadIsTheChanceOfBeingPicked) {
  // Two experts, one pick: with only its own noise drawn anew, each expert is picked with the chance that load says.
  RouterSpec spec{.num_experts = 2, .top_k = 1, .selector = "noisy_top_k"};
  spec.weigh = Weigh::softmax_after_top_k;
  spec.noise = 1;
  constexpr int64_t kTokens = 40000;
  std::vector<float> logits;
  for (int64_t t = 0; t < kTokens; ++t) logits.insert(logits.end(), {0.7f, 0});
  std::vector<double> load(2, 0);
  SelectInput in{.logits = logits.data(), .tokens = kTokens};
  add_smooth_load(spec, in, load);
  const Picks picks = select_picks(spec, logits, in);
  const auto first = static_cast<double>(std::count(picks.expert.begin(), picks.expert.end(), 0));
  const double expected = 0.5 * std::erfc(-0.7 / 2);  // of a difference of two normal numbers
  EXPECT_NEAR(first / kTokens, expected, 0.01);
  EXPECT_NEAR(load[0] / kTokens, expected, 0.01);
  EXPECT_NEAR(load[1] / kTokens, 1 - expected, 0.01);
}

TEST(NoisyTopK, LayersAndSeedsDrawApart) {
  RouterSpec spec{.num_experts = 16, .top_k = 4, .selector = "noisy_top_k"};
  spec.weigh = Weigh::softmax_after_top_k;
  spec.noise = 1;
  const std::vector<float> logits(16 * 16, 0.0f);
  SelectInput in;
  const Picks base = select_picks(spec, logits, in);
  in.random.layer = 1;
  EXPECT_NE(select_picks(spec, logits, in).expert, base.expert);
  in.random = {.seed = uint64_t{1} << 40};
  EXPECT_NE(select_picks(spec, logits, in).expert, base.expert);
}

TEST(SquaredVariation, IsVarianceOverSquaredMean) {
  EXPECT_EQ(squared_variation({}), 0);
  const std::vector<double> equal(5, 3.0), all_on_one = {8, 0, 0, 0};
  EXPECT_EQ(squared_variation(equal), 0);
  EXPECT_NEAR(squared_variation(all_on_one), 3, 1e-6);
}

}  // namespace
}  // namespace switchyard::moe
