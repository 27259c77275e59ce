// SPDX-License-Identifier: Apache-2.0
// Sides of the L2 out of measured distances: what a device with two of them shows, and what must not be taken for it.
#include "kernels/ops/l2_sides.h"

#include <bit>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

// As an H200 has them: 276 to 338 cycles near, 480 to 536 far.
std::vector<int32_t> two_kinds(int near, int far) {
  std::vector<int32_t> cycles;
  cycles.reserve(static_cast<size_t>(near + far));
  for (int i = 0; i < near; ++i) cycles.push_back(276 + 62 * i / near);
  for (int i = 0; i < far; ++i) cycles.push_back(480 + 56 * i / far);
  return cycles;
}

TEST(L2Sides, FarBeginsInTheGapBetweenTwoKindsOfDistances) {
  for (const auto& [near, far] : {std::pair{66, 66}, {64, 68}, {100, 34}}) {
    const int32_t least = l2_far_cycles(two_kinds(near, far));
    EXPECT_GT(least, 338) << near << " near";
    EXPECT_LE(least, 480) << near << " near";
  }
}

TEST(L2Sides, DistancesOfOneKindHaveNoFar) {
  EXPECT_EQ(l2_far_cycles(two_kinds(132, 0)), 0);
  EXPECT_EQ(l2_far_cycles(std::vector<int32_t>(132, 300)), 0);
  EXPECT_EQ(l2_far_cycles({}), 0);
  EXPECT_EQ(l2_far_cycles(std::vector<int32_t>{300}), 0);
}

TEST(L2Sides, AFewSlowOnesAreNoSide) {
  EXPECT_EQ(l2_far_cycles(two_kinds(130, 2)), 0);
  EXPECT_EQ(l2_far_cycles(two_kinds(2, 130)), 0);
}

std::vector<uint8_t> sides_by(uint32_t mask, uint8_t first) {
  std::vector<uint8_t> sides;
  for (uint32_t chunk = 0; chunk < 512; ++chunk) {
    sides.push_back(static_cast<uint8_t>(std::popcount(chunk * 4096 & mask) % 2) ^ first);
  }
  return sides;
}

TEST(L2Sides, TheMaskOfAPageIsFoundWhateverItsFirstSide) {
  for (const uint32_t mask : {0xab000u, 0x1000u, 0x1ff000u}) {
    EXPECT_EQ(l2_page_mask(sides_by(mask, 0)), mask);
    EXPECT_EQ(l2_page_mask(sides_by(mask, 1)), mask);
  }
}

TEST(L2Sides, SidesThatFollowFromNoBitsHaveNoMask) {
  std::vector<uint8_t> sides = sides_by(0xab000, 0);
  sides[300] ^= 1;
  EXPECT_EQ(l2_page_mask(sides), 0U);
  EXPECT_EQ(l2_page_mask(sides_by(0x2000, 0)), 0U) << "neighbours are on the same side";
  EXPECT_EQ(l2_page_mask(std::vector<uint8_t>(512, 0)), 0U);
  EXPECT_EQ(l2_page_mask({}), 0U);
}

}  // namespace
}  // namespace switchyard
