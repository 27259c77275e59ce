// SPDX-License-Identifier: Apache-2.0
// The picks of the single launch of one sequence against a sort: many equal logits, warps that are not full, and what is no number.
#include "kernels/cuda_picks.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cuda_hopper.h"
#include "kernels/cuda_memory.h"

namespace switchyard {
namespace {

using testing::DeviceArray;

struct Picked {
  std::vector<int> picks;
  bool usable;
};

Picked pick(const RouteRule& rule, const std::vector<float>& logits) {
  const DeviceArray<float> from(logits);
  DeviceArray<uint64_t> tallies(testing::tally_words());
  tallies.bytes().zero();
  DeviceArray<int> picks(rule.top_k), usable(1);
  picks.bytes().poison();
  testing::pick_from_tallies(rule, from.data(), tallies.data(), picks.data(), usable.data());
  EXPECT_EQ(testing::cuda_error(), "");
  return {picks.host(), usable.host()[0] == 1};
}

class CudaPicks : public testing::HopperTest {};

TEST_F(CudaPicks, AreTheHighestAndOfEqualOnesTheFirst) {
  std::mt19937 random(7);
  for (const int experts : {1, 8, 31, 33, 60, 64, 128, 200, 256}) {
    for (const int top_k : {1, 2, 6, 8, 16}) {
      if (top_k > experts) continue;
      for (const int values : {1, 3, 1000000}) {  // 1: all are equal
        std::vector<float> logits(static_cast<size_t>(experts));
        for (float& logit : logits) {
          logit = static_cast<float>(static_cast<int>(random() % values) - values / 2) / 1024;
        }
        std::vector<int> order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](int a, int b) {
          return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        order.resize(static_cast<size_t>(top_k));
        const Picked got = pick({.experts = experts, .top_k = top_k}, logits);
        EXPECT_TRUE(got.usable);
        EXPECT_EQ(got.picks, order)
            << experts << " experts, " << top_k << " picks, " << values << " values";
      }
    }
  }
}

TEST_F(CudaPicks, OfWhatIsNoNumberAreTheFirstExperts) {
  const RouteRule rule{.experts = 128, .top_k = 8};
  const std::vector<int> first{0, 1, 2, 3, 4, 5, 6, 7};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 1e9f}) {
    std::vector<float> logits(128, -1);
    logits[100] = bad;
    const Picked got = pick(rule, logits);
    EXPECT_FALSE(got.usable) << bad;
    EXPECT_EQ(got.picks, first) << bad;
  }
}

TEST_F(CudaPicks, LargeLogitsAreUsable) {
  std::vector<float> logits(64, 0);
  logits[9] = 200000;
  logits[40] = -200000;
  const Picked got = pick({.experts = 64, .top_k = 1}, logits);
  EXPECT_TRUE(got.usable);
  EXPECT_EQ(got.picks, std::vector<int>{9});
}

}  // namespace
}  // namespace switchyard
