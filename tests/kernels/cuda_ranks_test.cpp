// SPDX-License-Identifier: Apache-2.0
// The ranks of the blocks of the single launch of one sequence: all different, and of the parity of the near side as far as can be,
// whatever the table of multiprocessors says and however many blocks share one.
#include "kernels/cuda_ranks.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cuda_hopper.h"
#include "kernels/cuda_memory.h"

namespace switchyard {
namespace {

using testing::DeviceArray;

struct Claimed {
  std::vector<int> rank, side;
};

Claimed claim(const L2Sides& sides, int blocks) {
  testing::DeviceBytes counts(testing::count_bytes());
  counts.zero();
  DeviceArray<int> rank(blocks), side(blocks);
  testing::claim_ranks(sides, blocks, counts.data(), rank.data(), side.data());
  EXPECT_EQ(testing::cuda_error(), "");
  return {rank.host(), side.host()};
}

// Each word of the table has the same bits, or random ones.
std::vector<L2Sides> tables() {
  std::mt19937 random(11);
  std::vector<L2Sides> all;
  for (const uint32_t bits : {0u, 0xffffffffu, 0x55555555u, 1u, 0xfffffffeu, 0x0fffffffu, 2u}) {
    L2Sides sides{.mask = 0x1000};
    std::ranges::fill(sides.near, bits);
    if (bits == 2) std::ranges::generate(sides.near, std::ref(random));
    all.push_back(sides);
  }
  return all;
}

class CudaRanks : public testing::HopperTest {};

TEST_F(CudaRanks, AreAllDifferentAndOfTheNearSide) {
  for (const int blocks : {1, 2, 7, 64, 113, 132, 133, 200}) {
    for (const L2Sides& sides : tables()) {
      const Claimed got = claim(sides, blocks);
      std::vector<int> sorted = got.rank, all(static_cast<size_t>(blocks));
      std::ranges::sort(sorted);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << blocks << " blocks, table " << sides.near[0];
      for (const int side : {0, 1}) {
        int near = 0, own = 0;
        for (int i = 0; i < blocks; ++i) {
          if (got.side[i] != side) continue;
          ++near;
          own += got.rank[i] % 2 == side;
        }
        EXPECT_EQ(own, std::min(near, (blocks + 1 - side) / 2)) << blocks << " blocks";
      }
    }
  }
}

TEST_F(CudaRanks, AreBlocksWhereSidesAreNotKnown) {
  const Claimed got = claim({}, 132);
  for (int i = 0; i < 132; ++i) EXPECT_EQ(got.rank[i], i);
}

}  // namespace
}  // namespace switchyard
