// SPDX-License-Identifier: Apache-2.0
// The block pool: all or none, references, and its checks against our own mistakes.
#include "schedule/blocks.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace switchyard::schedule {
namespace {

TEST(BlocksFor, RoundsUp) {
  EXPECT_EQ(blocks_for(0, 16), 0);
  EXPECT_EQ(blocks_for(1, 16), 1);
  EXPECT_EQ(blocks_for(16, 16), 1);
  EXPECT_EQ(blocks_for(17, 16), 2);
}

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool(5);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.take(3, blocks));
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 2}));
  ASSERT_TRUE(pool.take(2, blocks));
  EXPECT_EQ(pool.num_free(), 0);
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(BlockPool, TakesAllOrNone) {
  BlockPool pool(2);
  std::vector<int32_t> blocks{7};
  EXPECT_FALSE(pool.take(3, blocks));
  EXPECT_EQ(blocks, std::vector<int32_t>{7});
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_TRUE(pool.take(0, blocks));
}

TEST(BlockPool, SharedBlockIsFreeAfterItsLastOwner) {
  BlockPool pool(1);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.take(1, blocks));
  pool.share(0);
  EXPECT_EQ(pool.references(0), 2);
  pool.release(0);
  EXPECT_EQ(pool.num_free(), 0);
  pool.release(blocks);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolDeathTest, OurOwnMistakesAbort) {
  BlockPool pool(1);
  EXPECT_DEATH(pool.release(0), "released twice");
  EXPECT_DEATH(pool.share(0), "cannot be shared");
  EXPECT_DEATH(pool.release(1), "block 1 of 1");
}

}  // namespace
}  // namespace switchyard::schedule
