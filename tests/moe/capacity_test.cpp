// SPDX-License-Identifier: Apache-2.0
// Capacity: the published values of every rounding rule, and dropping against a plain sort.
#include "moe/capacity.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "moe/route/token_choice.h"

namespace switchyard::moe {
namespace {

int64_t capacity(std::string_view rule, int64_t tokens, int top_k, int experts, float factor) {
  return expert_capacity(*find_capacity_rounding(rule).value(), tokens, top_k, experts, factor);
}

TEST(Capacity, RoundsUpByDefault) {
  EXPECT_EQ(RouterSpec{}.capacity_rounding, "ceil");
  EXPECT_EQ(capacity("ceil", 3, 2, 8, 1.0f), 1);
  EXPECT_EQ(capacity("ceil", 1, 8, 256, 1.25f), 1);
  EXPECT_EQ(capacity("ceil", 10, 2, 8, 1.25f), 4);
  EXPECT_EQ(capacity("ceil", 100, 1, 8, 1.0f), 13);
}

// Values worked out by hand from the formulas; where MegaBlocks and FastMoE give 0 we give 1.
TEST(Capacity, FollowsThePublishedRules) {
  EXPECT_EQ(capacity("floor", 3, 2, 8, 1.0f), 1);
  EXPECT_EQ(capacity("floor", 10, 2, 8, 1.25f), 3);
  EXPECT_EQ(capacity("floor", 100, 1, 8, 1.0f), 12);
  EXPECT_EQ(capacity("gshard", 3, 2, 8, 1.0f), 1);
  EXPECT_EQ(capacity("gshard", 5, 4, 3, 1.1f), 8);  // floor(6 * 4 / 3), where floor gives 7
  EXPECT_EQ(capacity("floor", 5, 4, 3, 1.1f), 7);
  EXPECT_EQ(capacity("tutel", 3, 2, 8, 1.0f), 2);
  EXPECT_EQ(capacity("tutel", 100, 2, 8, 1.25f), 32);  // 2 * floor(1.25 * 13)
  EXPECT_EQ(capacity("tutel", 3, 2, 8, 0.5f), 1);      // 2 * floor(0.5 * 1) is 0
}

// 1.1f is a little more than 1.1; the ceiling of 1.1 * 10 is 11 all the same.
TEST(Capacity, DecimalFactorsAreExact) {
  EXPECT_EQ(capacity("ceil", 80, 1, 8, 1.1f), 11);
  EXPECT_EQ(capacity("ceil", 110, 1, 1, 1.1f), 121);
  EXPECT_EQ(capacity("floor", 100, 1, 10, 1.3f), 13);
  EXPECT_EQ(capacity("ceil", 1000, 8, 64, 1.6f), 200);
}

TEST(Capacity, IsNeverZeroWithTokens) {
  for (const CapacityRounding& rounding : capacity_roundings()) {
    for (const float factor : {1e-9f, 0.001f, 1.0f}) {
      EXPECT_EQ(expert_capacity(rounding, 0, 8, 256, factor), 0) << rounding.name;
      for (const int64_t tokens : {1, 2, 31}) {
        EXPECT_GE(expert_capacity(rounding, tokens, 8, 256, factor), 1) << rounding.name;
      }
    }
  }
}

TEST(Capacity, NamesWhatItKnows) {
  const auto unknown = find_capacity_rounding("nearest");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Code::bad_request);
  EXPECT_NE(unknown.error().message.find("ceil floor gshard tutel"), std::string::npos);
}

/// A routing that owns its arrays.
struct Step1 {
  int64_t tokens;
  RouterSpec spec;
  std::vector<int32_t> expert, demand;
  std::vector<float> weight;
  Routing routing;

  Step1(int64_t num_tokens, const RouterSpec& s, std::vector<int32_t> picks,
        std::vector<float> weights)
      : tokens(num_tokens),
        spec(s),
        expert(std::move(picks)),
        demand(s.num_experts, 0),
        weight(std::move(weights)) {
    for (const int32_t e : expert)
      if (e >= 0) ++demand[e];
    const TensorView load = TensorView::of(demand.data(), {spec.num_experts});
    routing = {TensorView::of(expert.data(), {tokens, spec.top_k}),
               TensorView::of(weight.data(), {tokens, spec.top_k}),
               load,
               load,
               {}};
  }
  Step1(const Step1&) = delete;

  std::vector<int32_t> load() const {
    const auto* at = routing.load.as<int32_t>();
    return {at, at + spec.num_experts};
  }
};

/// An arena of exactly the promised room: taking more would abort.
Arena exact_arena(const Step1& step) {
  return Arena::create(std::max<int64_t>(limit_load_room(step.spec, step.tokens), 1)).value();
}

void limit(Step1& step, Arena& arena) {
  Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  limit_load(step.spec, step.routing, {stream, arena});
}

RouterSpec limited(int experts, int top_k, float factor, Overflow overflow) {
  return {.num_experts = experts, .top_k = top_k, .capacity_factor = factor, .overflow = overflow};
}

TEST(LimitLoad, KeepsTheEarliestOrTheHeaviest) {
  const std::vector<int32_t> picks = {0, 0, 0, 1};  // C = ceil(1 * 4 * 1 / 2) = 2
  const std::vector<float> weights = {0.5f, 0.2f, 0.9f, 0.1f};
  Step1 last(4, limited(2, 1, 1, Overflow::drop_last), picks, weights);
  Arena arena = exact_arena(last);
  limit(last, arena);
  EXPECT_EQ(last.expert, (std::vector<int32_t>{0, 0, -1, 1}));
  EXPECT_EQ(last.load(), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(last.demand, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(last.weight, weights);
  EXPECT_EQ(last.routing.counts.dropped, 1);
  EXPECT_EQ(last.routing.counts.unrouted_tokens, 1);

  Step1 lowest(4, limited(2, 1, 1, Overflow::drop_lowest), picks, weights);
  arena.reset();
  limit(lowest, arena);
  EXPECT_EQ(lowest.expert, (std::vector<int32_t>{0, -1, 0, 1}));
}

TEST(LimitLoad, TiesGoToTheEarlierToken) {
  Step1 step(4, limited(2, 1, 0.5f, Overflow::drop_lowest), {1, 1, 1, 1}, {0.5f, 0.5f, 0.5f, 0.5f});
  Arena arena = exact_arena(step);
  limit(step, arena);
  EXPECT_EQ(step.expert, (std::vector<int32_t>{1, -1, -1, -1}));
}

// Ranking by raw logits, where an empty place counts as 0, once let empty places win over tokens.
TEST(LimitLoad, NegativeLogitsKeepTheHigherWeight) {
  const RouterSpec spec = limited(2, 1, 1, Overflow::drop_lowest);
  const std::vector<float> logits = {-1, -9, -3, -9, -2, -9, -9, -1};
  std::vector<int32_t> expert(4);
  std::vector<float> weight(4);
  Pool pool({.num_threads = 1, .pin = false});
  SelectInput in;
  in.logits = logits.data();
  in.tokens = 4;
  token_choice(spec, in, {expert.data(), weight.data()}, Stream({}, pool));
  Step1 step(4, spec, expert, weight);
  Arena arena = exact_arena(step);
  limit(step, arena);
  EXPECT_EQ(step.expert, (std::vector<int32_t>{0, -1, 0, 1}));
}

TEST(LimitLoad, WeightsThatAreNoNumbersGoFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Step1 step(4, limited(1, 1, 0.5f, Overflow::drop_lowest), {0, 0, 0, 0}, {nan, 0, nan, 0.1f});
  Arena arena = exact_arena(step);
  limit(step, arena);
  EXPECT_EQ(step.expert, (std::vector<int32_t>{-1, 0, -1, 0}));
}

TEST(LimitLoad, SmallestFactorStillLeavesOnePickAnExpert) {
  for (const Overflow overflow : {Overflow::drop_last, Overflow::drop_lowest}) {
    Step1 step(3, limited(2, 2, 1e-9f, overflow), {0, 1, 0, 1, 1, 0}, std::vector<float>(6, 0.5f));
    Arena arena = exact_arena(step);
    limit(step, arena);
    EXPECT_EQ(step.expert, (std::vector<int32_t>{0, 1, -1, -1, -1, -1}));
    EXPECT_EQ(step.routing.counts.unrouted_tokens, 2);
  }
}

TEST(LimitLoad, DroplessTouchesNothing) {
  Step1 step(3, {.num_experts = 2, .top_k = 1}, {0, 0, 0}, {1, 1, 1});
  EXPECT_EQ(limit_load_room(step.spec, 1000), 0);
  Arena arena = exact_arena(step);
  limit(step, arena);
  EXPECT_EQ(arena.peak(), 0);
  EXPECT_EQ(step.expert, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(step.routing.load.data, step.routing.demand.data);
}

TEST(LimitLoad, NothingToDoWithoutTokensOrWhenOneTokenDecodes) {
  Step1 none(0, limited(4, 2, 1, Overflow::drop_lowest), {}, {});
  Arena arena = exact_arena(none);
  limit(none, arena);
  EXPECT_EQ(none.routing.counts.dropped, 0);

  std::vector<int32_t> picks(8);
  std::iota(picks.begin(), picks.end(), 100);
  Step1 decode(1, limited(256, 8, 1.25f, Overflow::drop_last), picks, std::vector<float>(8, 1));
  Arena decode_arena = exact_arena(decode);
  limit(decode, decode_arena);
  EXPECT_EQ(decode.expert, picks);
  EXPECT_EQ(decode_arena.peak(), 0);
}

/// Each expert's picks sorted as the rule says; those behind the capacity go.
std::vector<int32_t> naive(const Step1& step) {
  std::vector<int32_t> expert = step.expert;
  const int64_t most = capacity("ceil", step.tokens, step.spec.top_k, step.spec.num_experts,
                                step.spec.capacity_factor);
  for (int e = 0; e < step.spec.num_experts; ++e) {
    std::vector<size_t> picks;
    for (size_t pick = 0; pick < expert.size(); ++pick)
      if (expert[pick] == e) picks.push_back(pick);
    if (step.spec.overflow == Overflow::drop_lowest) {
      std::stable_sort(picks.begin(), picks.end(),
                       [&](size_t a, size_t b) { return step.weight[a] > step.weight[b]; });
    }
    for (size_t i = static_cast<size_t>(most); i < picks.size(); ++i) expert[picks[i]] = -1;
  }
  return expert;
}

TEST(LimitLoad, EqualsThePlainSort) {
  std::mt19937 random(17);
  int dropping = 0;
  for (int round = 0; round < 400; ++round) {
    const int experts = 1 + static_cast<int>(random() % 40);
    const int top_k = 1 + static_cast<int>(random() % std::min(experts, 6));
    const auto tokens = static_cast<int64_t>(random() % 70);
    const float factor = 0.1f + static_cast<float>(random() % 15) * 0.1f;
    std::vector<int32_t> picks;
    std::vector<float> weights;
    std::vector<int32_t> order(experts);
    for (int64_t t = 0; t < tokens; ++t) {
      std::iota(order.begin(), order.end(), 0);
      // Some skew, some ties, some picks that the router itself left empty.
      if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
      for (int k = 0; k < top_k; ++k) {
        picks.push_back(random() % 20 == 0 ? -1 : order[k]);
        weights.push_back(static_cast<float>(random() % 8) / 8);
      }
    }
    for (const Overflow overflow : {Overflow::drop_last, Overflow::drop_lowest}) {
      Step1 step(tokens, limited(experts, top_k, factor, overflow), picks, weights);
      const std::vector<int32_t> wanted = naive(step);
      Arena arena = exact_arena(step);
      limit(step, arena);
      ASSERT_EQ(step.expert, wanted) << "round " << round;
      std::vector<int32_t> load(experts, 0);
      int64_t lost = 0, unrouted = 0;
      for (size_t pick = 0; pick < picks.size(); ++pick) {
        if (wanted[pick] >= 0) ++load[wanted[pick]];
        lost += wanted[pick] != picks[pick] ? 1 : 0;
      }
      for (size_t at = 0; at < wanted.size(); at += top_k)
        unrouted += std::count(&wanted[at], &wanted[at] + top_k, -1) == top_k ? 1 : 0;
      ASSERT_EQ(step.load(), load);
      ASSERT_EQ(step.routing.counts.dropped, lost);
      if (lost > 0) {
        ASSERT_EQ(step.routing.counts.unrouted_tokens, unrouted);
        ++dropping;
      }
    }
  }
  EXPECT_GT(dropping, 300);
}

TEST(RouterSpecCapacity, RefusesWhatMeansNothing) {
  const auto message = [](float factor, Overflow overflow) {
    const Status status = limited(8, 2, factor, overflow).check();
    return status.ok() ? std::string("fine") : status.error().message;
  };
  EXPECT_EQ(message(1.25f, Overflow::drop_last), "fine");
  EXPECT_EQ(message(0, Overflow::none), "fine");
  EXPECT_NE(message(-1, Overflow::drop_last).find("capacity_factor is -1"), std::string::npos);
  EXPECT_NE(message(std::numeric_limits<float>::quiet_NaN(), Overflow::drop_last).find("nan"),
            std::string::npos);
  EXPECT_NE(message(std::numeric_limits<float>::infinity(), Overflow::drop_last).find("inf"),
            std::string::npos);
  EXPECT_NE(message(8.5f, Overflow::drop_last).find("at most num_experts (8)"), std::string::npos);
  EXPECT_NE(message(1, Overflow::none).find("both or neither"), std::string::npos);
  EXPECT_NE(message(0, Overflow::drop_last).find("both or neither"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::moe
