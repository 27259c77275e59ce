// SPDX-License-Identifier: Apache-2.0
// What a placement means: loads of ranks, and each broken rule is found.
#include "placement/placement.h"

#include <gtest/gtest.h>

#include "base/text_checks.h"

namespace switchyard::placement {
namespace {

/// Three experts on two ranks of two slots, expert 0 on both.
Placement sound() { return {2, 2, {{{0, 0}, {1, 1}}, {{0, 1}}, {{1, 0}}}}; }

TEST(Placement, AReplicaTakesAnEvenShare) {
  const std::vector<double> load{6, 1, 5};
  EXPECT_EQ(rank_loads(sound(), load), (std::vector<double>{4, 8}));
  EXPECT_DOUBLE_EQ(rank_imbalance(sound(), load), 8.0 / 6);
  EXPECT_DOUBLE_EQ(rank_imbalance(sound(), std::vector<double>{0, 0, 0}), 1);
  EXPECT_EQ(sound().num_replicas(), 1);
}

TEST(Placement, EveryBrokenRuleIsFound) {
  EXPECT_TRUE(check_placement(sound(), Sharing::distinct_ranks).ok());
  struct Case {
    const char* says;
    std::vector<std::vector<SlotId>> replicas;
  };
  const Case cases[] = {
      {"expert 1 has no place", {{{0, 0}}, {}}},
      {"expert 0 on rank 2 slot 0", {{{2, 0}}}},
      {"expert 0 on rank 0 slot 2", {{{0, 2}}}},
      {"expert 0 on rank 0 slot -1", {{{0, -1}}}},
      {"experts 0 and 1 share slot 1 of rank 0", {{{0, 1}}, {{0, 1}}}},
      {"rank 1 holds expert 0 twice", {{{1, 0}, {1, 1}}}},
  };
  for (const Case& c : cases) {
    const Status status = check_placement({2, 2, c.replicas}, Sharing::distinct_ranks);
    ASSERT_FALSE(status.ok()) << c.says;
    EXPECT_TRUE(has(status.error().message, c.says));
  }
  EXPECT_TRUE(check_placement({2, 2, {{{1, 0}, {1, 1}}}}, Sharing::allowed).ok());
}

TEST(Placement, ProblemsWithoutSenseAreRefused) {
  const std::vector<double> load{1, 2, 3, 4};
  const auto says = [&](const Problem& problem, const char* part) {
    const Status status = problem.check();
    return status.ok() ? testing::AssertionFailure() << part : has(status.error().message, part);
  };
  EXPECT_TRUE((Problem{.load = load, .num_ranks = 2}.check().ok()));
  EXPECT_TRUE(says({.load = {}}, "the number of experts is 0"));
  EXPECT_TRUE(says({.load = load, .num_ranks = 0}, "the number of ranks is 0"));
  EXPECT_TRUE(says({.load = load, .num_replicas = -1}, "the number of replicas is -1"));
  EXPECT_TRUE(says({.load = load, .num_ranks = 4, .num_nodes = 3}, "the number of nodes is 3"));
  EXPECT_TRUE(says({.load = load, .num_groups = 3}, "the number of groups is 3"));
  const std::vector<double> bad{1, -1};
  EXPECT_TRUE(says({.load = bad}, "a load is -1"));
}

}  // namespace
}  // namespace switchyard::placement
