// SPDX-License-Identifier: Apache-2.0
// The arena hands out aligned, disjoint pieces, takes them back in order, and remembers its peak.
#include "device/arena.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Arena, PiecesAreAlignedAndDisjoint) {
  Result<Arena> arena = Arena::create(Arena::room<float>(3) + Arena::room<int32_t>(17));
  ASSERT_TRUE(arena.ok());
  const auto a = arena->take<float>(3);
  const auto b = arena->take<int32_t>(17);
  EXPECT_EQ(a.size(), 3u);
  EXPECT_EQ(b.size(), 17u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % Arena::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % Arena::kAlignment, 0u);
  EXPECT_GE(reinterpret_cast<std::byte*>(b.data()), reinterpret_cast<std::byte*>(a.data() + 3));
}

TEST(Arena, RewindAndResetGiveTheSamePiecesAgain) {
  Result<Arena> arena = Arena::create(Arena::room<float>(3) + Arena::room<int32_t>(17));
  ASSERT_TRUE(arena.ok());
  const auto a = arena->take<float>(3);
  const int64_t mark = arena->mark();
  const auto b = arena->take<int32_t>(17);
  arena->rewind(mark);
  EXPECT_EQ(arena->take<int32_t>(17).data(), b.data());
  arena->reset();
  EXPECT_EQ(arena->take<float>(1).data(), a.data());
  EXPECT_EQ(arena->peak(), arena->size());
}

TEST(Arena, RoomIsRoundedUp) {
  EXPECT_EQ(Arena::room<float>(0), 0);
  EXPECT_EQ(Arena::room<float>(1), 64);
  EXPECT_EQ(Arena::room<float>(16), 64);
  EXPECT_EQ(Arena::room<float>(17), 128);
}

TEST(Arena, TooLargeIsAnErrorNotACrash) {
  const Result<Arena> arena = Arena::create(int64_t{1} << 60);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.error().code, Code::out_of_memory);
}

TEST(ArenaDeathTest, RunningOutIsABug) {
  Result<Arena> arena = Arena::create(128);
  ASSERT_TRUE(arena.ok());
  arena->take<float>(16);
  EXPECT_DEATH(arena->take<float>(17), "arena of 128 bytes: 64 used, 128 more asked");
}

}  // namespace
}  // namespace switchyard
