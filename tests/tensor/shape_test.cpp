// SPDX-License-Identifier: Apache-2.0
// Shapes count their elements and refuse what overflows.
#include "tensor/shape.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ((Shape{2, 3, 4}).elements(), 24);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{2, 0, 4}).checked_elements(), 0);
  EXPECT_EQ((Shape{2, 3}).text(), "[2, 3]");
  EXPECT_EQ(Shape{}.text(), "[]");
}

TEST(Shape, RefusesOverflowAndNegativeExtents) {
  EXPECT_FALSE((Shape{int64_t{1} << 40, int64_t{1} << 40}).checked_elements());
  EXPECT_FALSE((Shape{-1, 2}).checked_elements());
  EXPECT_FALSE((Shape{-1, -1}).checked_elements());
  EXPECT_FALSE((Shape{int64_t{1} << 62, 4, 0}).checked_elements());  // overflows on the way
}

TEST(Shape, ComparesExtentsAndRank) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
  Shape built;
  built.append(2);
  built.append(3);
  EXPECT_EQ(built, (Shape{2, 3}));
}

TEST(Shape, RowMajorStridesAreDense) {
  EXPECT_EQ(row_major({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(row_major({}), Strides{});
}

TEST(ShapeDeathTest, RankIsAtMostFive) {
  EXPECT_DEATH((Shape{1, 1, 1, 1, 1, 1}), "rank 6");
  Shape full{1, 1, 1, 1, 1};
  EXPECT_DEATH(full.append(1), "rank 6");
}

}  // namespace
}  // namespace switchyard
