// SPDX-License-Identifier: Apache-2.0
// Philox against the known answers of its authors (Random123, kat_vectors), and the ranges of the unit numbers.
#include "base/random.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UnitNumbersAreInTheHalfOpenInterval) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(0xffffffff), 1.0f);
  EXPECT_EQ(unit_float(0x80000000), 0.5f);
  EXPECT_EQ(unit_double(0, 0), 0.0);
  EXPECT_LT(unit_double(0xffffffff, 0xffffffff), 1.0);
  EXPECT_EQ(unit_double(0x80000000, 0), 0.5);
}

TEST(Philox, MeanIsAHalf) {
  double sum = 0;
  constexpr uint32_t kBlocks = 10'000;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    for (const uint32_t word : philox4x32({i, 0, 0, 0}, {7, 7}))
      sum += static_cast<double>(unit_float(word));
  }
  EXPECT_NEAR(sum / (4 * kBlocks), 0.5, 0.006);  // four standard deviations of the mean
}

}  // namespace
}  // namespace switchyard
