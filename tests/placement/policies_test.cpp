// SPDX-License-Identifier: Apache-2.0
// Every policy of the table: complete placements within the slots on all sizes, never worse than round robin on recorded
// loads; and the published plan of EPLB, slot for slot.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/text_checks.h"
#include "placement/pack.h"
#include "placement/table.h"

namespace switchyard::placement {
namespace {

std::vector<double> zipf(int count, double exponent, std::mt19937& random) {
  std::vector<double> load;
  for (int i = 1; i <= count; ++i) load.push_back(std::floor(10000 * std::pow(i, -exponent)));
  std::shuffle(load.begin(), load.end(), random);
  return load;
}

/// Slots that hold some expert, [W][S], -1 where none.
std::vector<int> slots_of(const Placement& placement) {
  std::vector<int> slots(static_cast<size_t>(placement.num_ranks * placement.slots_per_rank), -1);
  for (int e = 0; e < placement.num_experts(); ++e)
    for (const SlotId& at : placement.replicas[static_cast<size_t>(e)])
      slots[static_cast<size_t>(at.rank * placement.slots_per_rank + at.slot)] = e;
  return slots;
}

TEST(Policies, PlaceEveryExpertWithinTheSlots) {
  std::mt19937 random(1);
  int placed = 0;
  for (const int experts : {1, 2, 7, 8, 32, 64, 128}) {
    for (const int ranks : {1, 2, 3, 6, 8, 32}) {
      for (const int replicas : {0, 1, 3, 7, 32}) {
        const std::vector<double> load = zipf(experts, replicas % 2 == 0 ? 0.6 : 1.2, random);
        const Problem problem{.load = load, .num_ranks = ranks, .num_replicas = replicas};
        ASSERT_TRUE(problem.check().ok());
        for (const Policy* policy : policies()) {
          SCOPED_TRACE(fmt::format("{}: {} experts, {} ranks, {} replicas", policy->name, experts,
                                   ranks, replicas));
          const auto placement = policy->place(problem);
          if (!placement.ok()) {
            EXPECT_EQ(placement.error().code, Code::unsupported);
            continue;
          }
          ++placed;
          const Status sound = check_placement(*placement, policy->sharing);
          EXPECT_TRUE(sound.ok()) << sound.error().message;
          EXPECT_EQ(placement->num_ranks, ranks);
          EXPECT_EQ(placement->num_experts(), experts);
          EXPECT_LE(placement->num_replicas(), replicas);
          const int held = experts + placement->num_replicas();
          EXPECT_EQ(placement->slots_per_rank, (held + ranks - 1) / ranks) << "as few as hold all";
          const std::vector<double> loads = rank_loads(*placement, load);
          EXPECT_NEAR(std::accumulate(loads.begin(), loads.end(), 0.0),
                      std::accumulate(load.begin(), load.end(), 0.0), 1e-6);
          EXPECT_EQ(slots_of(*placement), slots_of(*policy->place(problem))) << "deterministic";
        }
      }
    }
  }
  EXPECT_GT(placed, 500);
}

/// [layer][E] of the demonstration model's validation text, all domains together.
std::vector<std::vector<double>> recorded_loads() {
  const auto json = read_json_file(SWITCHYARD_SOURCE_DIR "/models/demo/routing_stats.json");
  EXPECT_TRUE(json.ok());
  std::vector<std::vector<double>> layers;
  for (const Json& layer : json->find("counts")->as_array()) {
    auto& load = layers.emplace_back();
    for (const Json& expert : layer.as_array()) {
      double picks = 0;
      for (const Json& domain : expert.as_array()) picks += domain.as_double();
      load.push_back(picks);
    }
  }
  return layers;
}

TEST(Policies, AreNeverWorseThanRoundRobinOnRecordedLoads) {
  const auto layers = recorded_loads();
  ASSERT_EQ(layers.size(), 6u);
  double greedy_sum = 0, plain_sum = 0, hot_sum = 0;
  for (const std::vector<double>& load : layers) {
    for (const int ranks : {2, 4, 8, 16}) {
      const Problem problem{.load = load, .num_ranks = ranks, .num_replicas = 3};
      const double plain = rank_imbalance(*kRoundRobin.place(problem), load);
      const double greedy = rank_imbalance(*kGreedy.place(problem), load);
      const double hot = rank_imbalance(*kReplicateHot.place(problem), load);
      EXPECT_LE(greedy, plain) << ranks;
      EXPECT_LE(hot, greedy) << ranks;
      plain_sum += plain;
      greedy_sum += greedy;
      hot_sum += hot;
    }
  }
  EXPECT_LT(greedy_sum, 0.9 * plain_sum);
  EXPECT_LT(hot_sum, greedy_sum);
}

TEST(Policies, GreedyFindsTheBestWhereItIsEasy) {
  const std::vector<double> load{7, 1, 2, 6};
  const auto greedy = kGreedy.place({.load = load, .num_ranks = 2});
  EXPECT_EQ(rank_loads(*greedy, load), (std::vector<double>{8, 8}));
  EXPECT_DOUBLE_EQ(rank_imbalance(*kRoundRobin.place({.load = load, .num_ranks = 2}), load),
                   9.0 / 8);
}

TEST(Policies, ReplicasHelpOnceAnExpertExceedsARanksShare) {
  // One expert has half of all picks: four ranks cannot do better than 2 without a second place.
  const std::vector<double> load{60, 9, 9, 9, 9, 8, 8, 8};
  const Problem problem{.load = load, .num_ranks = 4, .num_replicas = 1};
  EXPECT_DOUBLE_EQ(rank_imbalance(*kGreedy.place(problem), load), 68.0 / 30);
  const auto hot = kReplicateHot.place(problem);
  EXPECT_EQ(hot->replicas[0].size(), 2u);
  EXPECT_LT(rank_imbalance(*hot, load), 1.3);
}

TEST(Policies, ReplicateHotRefusesReplicasWithoutAPlace) {
  const std::vector<double> load{1, 2};
  const auto alone = kReplicateHot.place({.load = load, .num_ranks = 1, .num_replicas = 1});
  ASSERT_FALSE(alone.ok());
  EXPECT_TRUE(has(alone.error().message, "2 experts on 1 ranks"));
  EXPECT_FALSE(kReplicateHot.place({.load = load, .num_ranks = 2, .num_replicas = 3}).ok());
}

TEST(Pack, MovesSomethingWhenOnlyItsOwnRankHasRoom) {
  // The light expert 3 comes last and twice; both of its copies would end on one rank.
  const std::vector<double> load{10, 4, 3, 1};
  const std::vector<int> copies{1, 1, 1, 2};
  for (int ranks = 2; ranks <= 4; ++ranks) {
    const Placement placement = pack(load, copies, ranks);
    EXPECT_TRUE(check_placement(placement, Sharing::distinct_ranks).ok()) << ranks;
  }
  std::mt19937 random(9);
  for (int i = 0; i < 2000; ++i) {
    const int ranks = 1 + static_cast<int>(random() % 5),
              experts = 1 + static_cast<int>(random() % 7);
    std::vector<double> loads;
    std::vector<int> wanted;
    for (int e = 0; e < experts; ++e) {
      loads.push_back(static_cast<double>(random() % 20));
      wanted.push_back(1 + static_cast<int>(random() % static_cast<unsigned>(ranks)));
    }
    const Status sound = check_placement(pack(loads, wanted, ranks), Sharing::distinct_ranks);
    ASSERT_TRUE(sound.ok()) << sound.error().message;
  }
}

/// The example of the balancer's own README: 2 nodes, 8 devices, 4 groups, 12 experts and 4 replicas.
TEST(Eplb, GivesThePublishedPlan) {
  const std::vector<double> loads[] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                       {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
  const std::vector<int> plans[] = {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                                    {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
  for (int layer = 0; layer < 2; ++layer) {
    const Problem problem{
        .load = loads[layer], .num_ranks = 8, .num_replicas = 4, .num_nodes = 2, .num_groups = 4};
    const auto placement = kEplb.place(problem);
    ASSERT_TRUE(placement.ok());
    EXPECT_EQ(slots_of(*placement), plans[layer]);
  }
}

TEST(Eplb, RefusesSlotsThatDoNotDivide) {
  const std::vector<double> load(128, 1);
  const auto placement = kEplb.place({.load = load, .num_ranks = 6});
  ASSERT_FALSE(placement.ok());
  EXPECT_TRUE(has(placement.error().message, "128 experts and 0 replicas do not divide into 6"));
}

}  // namespace
}  // namespace switchyard::placement
