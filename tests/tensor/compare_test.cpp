// SPDX-License-Identifier: Apache-2.0
// Distances between tensors, and where the worst one is.
#include "tensor/compare.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/text_checks.h"

namespace switchyard {
namespace {

using Floats = std::vector<float>;

TEST(Compare, SameIsZero) {
  const Floats values = {1, 2, 3, 4};
  const Comparison same = compare(values, values);
  EXPECT_EQ(same.nmse, 0);
  EXPECT_EQ(same.relative_error, 0);
  EXPECT_EQ(same.max_error, 0);
  EXPECT_TRUE(same.finite);
  EXPECT_EQ(compare(Floats{}, Floats{}).nmse, 0);
  EXPECT_EQ(compare(Floats{0, 0}, Floats{0, 0}).nmse, 0);
}

TEST(Compare, FindsTheWorst) {
  const Comparison off = compare(Floats{1, 2.5f, 3, 4.25f}, Floats{1, 2, 3, 4});
  EXPECT_EQ(off.worst_index, 1);
  EXPECT_EQ(off.max_error, 0.5);
  EXPECT_NEAR(off.nmse, (0.25 + 0.0625) / 30, 1e-12);
  EXPECT_NEAR(off.relative_error, std::sqrt(off.nmse), 1e-12);
  EXPECT_TRUE(has(off.text(), "at index 1: found 2.5, expected 2"));
}

TEST(Compare, StopsAtTheFirstThatIsNotFinite) {
  const Comparison bad = compare(Floats{1, 2, NAN, INFINITY, 9}, Floats{1, 2, 3, 4, 0});
  EXPECT_FALSE(bad.finite);
  EXPECT_EQ(bad.worst_index, 2);
  EXPECT_TRUE(std::isinf(bad.nmse) && std::isinf(bad.relative_error) && std::isinf(bad.max_error));
  EXPECT_FALSE(compare(Floats{1}, Floats{NAN}).finite);  // on either side
}

TEST(Compare, ErrorAgainstNothingIsInfinite) {
  EXPECT_TRUE(std::isinf(compare(Floats{1}, Floats{0}).nmse));
}

TEST(CompareDeathTest, LengthsMustAgree) {
  EXPECT_DEATH((void)compare(Floats{1, 2}, Floats{1}), "2 values against 1");
}

}  // namespace
}  // namespace switchyard
