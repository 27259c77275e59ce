// SPDX-License-Identifier: Apache-2.0
// The index of blocks against a map, and the keys that it holds.
#include "schedule/block_index.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace switchyard::schedule {
namespace {

/// Keys that meet in few places, so that they stand in each other's way.
BlockKey crowded_key(uint32_t number) {
  return {number % 5 + (uint64_t{number / 40} << 8), number};
}

TEST(BlockIndex, AgreesWithAMapUnderCrowdedKeys) {
  for (const int num_blocks : {1, 7, 64}) {
    BlockIndex index(num_blocks);
    std::map<BlockKey, int32_t> model;
    std::mt19937 random(static_cast<uint32_t>(num_blocks));
    for (int i = 0; i < 20000; ++i) {
      const BlockKey key = crowded_key(static_cast<uint32_t>(random() % 100));
      const auto at = model.find(key);
      ASSERT_EQ(index.find(key), at == model.end() ? -1 : at->second);
      if (at != model.end()) {
        index.erase(key);
        model.erase(at);
      } else if (static_cast<int>(model.size()) < num_blocks) {
        index.insert(key, i);
        model[key] = i;
      }
    }
    for (uint32_t number = 0; number < 100; ++number) {
      const auto at = model.find(crowded_key(number));
      ASSERT_EQ(index.find(crowded_key(number)), at == model.end() ? -1 : at->second);
    }
  }
}

TEST(BlockIndexDeathTest, OurOwnMistakesAbort) {
  BlockIndex index(2);
  index.insert({1, 1}, 0);
  EXPECT_DEATH(index.insert({1, 1}, 1), "key of block 1 is that of block 0");
  EXPECT_DEATH(index.erase({2, 1}), "not there is erased");
}

TEST(BlockKey, DependsOnTokensOrderPositionSaltAndSecret) {
  const SipKey secret{1, 2}, other{1, 3};
  const std::vector<int32_t> a{1, 2, 3, 4}, b{1, 2, 4, 3};
  const BlockKey start = first_key(secret, "");
  const BlockKey key = next_key(secret, start, a);
  EXPECT_EQ(key, next_key(secret, start, a));
  EXPECT_NE(key, next_key(secret, start, b));
  EXPECT_NE(key, next_key(secret, first_key(secret, "salt"), a));
  EXPECT_NE(key, next_key(secret, key, a)) << "the same tokens one block later";
  EXPECT_NE(key, next_key(other, first_key(other, ""), a));
}

}  // namespace
}  // namespace switchyard::schedule
