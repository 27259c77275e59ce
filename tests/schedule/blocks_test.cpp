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

/// A pool of which block i < named is published under key i.
BlockPool pool_of(int num_blocks, int named, std::vector<int32_t>& blocks) {
  BlockPool pool(num_blocks);
  EXPECT_TRUE(pool.take(num_blocks, blocks));
  for (int i = 0; i < named; ++i)
    pool.publish(blocks[static_cast<size_t>(i)], {static_cast<uint64_t>(i), 0});
  return pool;
}

TEST(BlockPool, NamedBlocksAreCachedUntilTheyAreNeeded) {
  std::vector<int32_t> blocks;
  BlockPool pool = pool_of(3, 2, blocks);
  pool.release(blocks);
  EXPECT_EQ(pool.num_cached(), 2);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.find({1, 0}), 1);
  pool.share(1);
  EXPECT_EQ(pool.references(1), 1);
  EXPECT_EQ(pool.num_cached(), 1);
  std::vector<int32_t> more;
  EXPECT_FALSE(pool.take(3, more));
  ASSERT_TRUE(pool.take(2, more));  // the free one, then the cached one
  EXPECT_EQ(more, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(pool.evictions(), 1u);
  EXPECT_EQ(pool.find({0, 0}), -1);
  EXPECT_EQ(pool.find({1, 0}), 1) << "a used block is never evicted";
}

TEST(BlockPool, EvictsWhatWasGivenUpLongestAgo) {
  std::vector<int32_t> blocks;
  BlockPool pool = pool_of(4, 4, blocks);
  for (const int32_t block : {2, 0, 3, 1}) pool.release(block);
  pool.share(2);
  pool.release(2);  // now the newest
  std::vector<int32_t> order;
  ASSERT_TRUE(pool.take(4, order));
  EXPECT_EQ(order, (std::vector<int32_t>{0, 3, 1, 2}));
}

TEST(BlockPool, TheEndOfASequenceIsEvictedBeforeItsBeginning) {
  std::vector<int32_t> blocks;
  BlockPool pool = pool_of(3, 3, blocks);
  pool.release(blocks);
  std::vector<int32_t> order;
  ASSERT_TRUE(pool.take(3, order));
  EXPECT_EQ(order, (std::vector<int32_t>{2, 1, 0}));
}

TEST(BlockPool, TheSecondBlockOfTheSameContentsStaysUnnamed) {
  std::vector<int32_t> blocks;
  BlockPool pool = pool_of(2, 1, blocks);
  pool.publish(1, {0, 0});
  EXPECT_EQ(pool.find({0, 0}), 0);
  pool.release(blocks);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_cached(), 1);
}

TEST(BlockPool, ForgottenContentsAreNotFoundAgain) {
  std::vector<int32_t> blocks;
  BlockPool pool = pool_of(3, 3, blocks);
  pool.release(0);
  pool.forget(0);  // cached: free now
  pool.forget(1);  // used: stays so
  pool.forget(1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_cached(), 0);
  for (const uint64_t key : {0, 1}) EXPECT_EQ(pool.find({key, 0}), -1);
  pool.release(1);
  pool.release(2);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.num_cached(), 1);
}

TEST(BlockPoolDeathTest, OurOwnMistakesAbort) {
  BlockPool pool(1);
  EXPECT_DEATH(pool.release(0), "released twice");
  EXPECT_DEATH(pool.share(0), "cannot be shared");
  EXPECT_DEATH(pool.release(1), "block 1 of 1");
  EXPECT_DEATH(pool.publish(0, {1, 1}), "0 owners");
}

}  // namespace
}  // namespace switchyard::schedule
