// SPDX-License-Identifier: Apache-2.0
// The dispatch plan is a permutation, sorted by slot and stable in token order, for any routing.
#include "moe/plan.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::moe {
namespace {

struct Case {
  int64_t tokens;
  int top_k, experts;
  double drop;  ///< share of picks that are dropped
};

class Plan : public testing::TestWithParam<Case> {};

TEST_P(Plan, IsAStablePermutationOfThePicksThatWereKept) {
  const Case& c = GetParam();
  std::mt19937 random(7);
  std::vector<int32_t> expert(c.tokens * c.top_k), load(c.experts, 0);
  for (int32_t& e : expert) {
    const bool dropped = std::uniform_real_distribution<>(0, 1)(random) < c.drop;
    e = dropped ? -1 : static_cast<int32_t>(random() % c.experts);
    if (e >= 0) ++load[e];
  }
  std::vector<float> weight(expert.size());
  const Routing routing{TensorView::of(expert.data(), {c.tokens, c.top_k}),
                        TensorView::of(weight.data(), {c.tokens, c.top_k}),
                        TensorView::of(load.data(), {c.experts}),
                        TensorView::of(load.data(), {c.experts}),
                        {}};
  Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  Result<Arena> arena = Arena::create(plan_room(c.tokens, c.top_k, c.experts));
  ASSERT_TRUE(arena.ok());
  const DispatchPlan plan = plan_local(routing, {stream, *arena});

  const auto* offset = plan.slot_offset.as<int32_t>();
  const auto* row_token = plan.row_token.as<int32_t>();
  const auto* pick_row = plan.pick_row.as<int32_t>();
  EXPECT_EQ(offset[0], 0);
  EXPECT_EQ(offset[c.experts], plan.rows);
  std::vector<int> used(plan.rows, 0);
  for (int64_t pick = 0; pick < c.tokens * c.top_k; ++pick) {
    if (expert[pick] < 0) {
      EXPECT_EQ(pick_row[pick], -1);
      continue;
    }
    const int32_t row = pick_row[pick];
    ASSERT_GE(row, offset[expert[pick]]);
    ASSERT_LT(row, offset[expert[pick] + 1]);
    EXPECT_EQ(row_token[row], pick / c.top_k);
    ++used[row];
  }
  for (const int count : used) EXPECT_EQ(count, 1);
  for (int e = 0; e < c.experts; ++e) {
    for (int32_t row = offset[e] + 1; row < offset[e + 1]; ++row) {
      EXPECT_LE(row_token[row - 1], row_token[row]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Random, Plan,
                         testing::Values(Case{0, 2, 8, 0}, Case{1, 1, 1, 0}, Case{1, 8, 64, 0},
                                         Case{33, 2, 8, 0}, Case{100, 4, 256, 0.3},
                                         Case{257, 3, 7, 1.0}));

}  // namespace
}  // namespace switchyard::moe
