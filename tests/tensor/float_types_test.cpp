// SPDX-License-Identifier: Apache-2.0
// bf16 and f16: every value reads back, and narrowing finds the nearest neighbour, ties to even.
#include "tensor/float_types.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

template <class T>
T narrow(float value);
template <>
Bf16 narrow<Bf16>(float value) {
  return to_bf16(value);
}
template <>
F16 narrow<F16>(float value) {
  return to_f16(value);
}

template <class T>
class Narrow : public testing::Test {};
using Types = testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(Narrow, Types);

TYPED_TEST(Narrow, EveryValueReadsBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const TypeParam value{static_cast<uint16_t>(bits)};
    const TypeParam again = narrow<TypeParam>(to_float(value));
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(again))) << bits;
    } else {
      EXPECT_EQ(again.bits, value.bits);
    }
  }
}

TYPED_TEST(Narrow, FindsTheNearestTiesToEven) {
  std::mt19937 random(5);
  const uint16_t infinity = narrow<TypeParam>(std::numeric_limits<float>::infinity()).bits;
  for (int i = 0; i < 200'000; ++i) {
    // Any positive value of the type, moved by a part of the way to its neighbour; the middle too.
    const auto low = static_cast<uint16_t>(random() % (infinity - 1u));
    const TypeParam below{low}, above{static_cast<uint16_t>(low + 1)};
    const double a = static_cast<double>(to_float(below)), b = static_cast<double>(to_float(above));
    const double middle = (a + b) / 2;
    const double part = static_cast<double>(random() % 4097) / 4096;
    const auto value = static_cast<float>(i % 3 == 0 ? middle : a + (b - a) * part);
    const double exact = static_cast<double>(value);
    const bool up = exact > middle || (exact == middle && (low & 1u) != 0);
    EXPECT_EQ(narrow<TypeParam>(value).bits, up ? above.bits : below.bits) << value;
    EXPECT_EQ(narrow<TypeParam>(-value).bits, (up ? above.bits : below.bits) | 0x8000u) << -value;
  }
}

TEST(Bf16, RoundsAtItsEdges) {
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);            // a tie, down to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);  // a tie, up to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1.01p-8f)), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7F800001u)))));  // not infinity
}

TEST(F16, RoundsAtItsEdges) {
  EXPECT_EQ(to_float(to_f16(65504.0f)), 65504.0f);
  EXPECT_EQ(to_float(to_f16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.0f))));
  EXPECT_EQ(to_float(to_f16(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(to_float(to_f16(0x1p-25f)), 0.0f);
  EXPECT_EQ(to_float(to_f16(0x1.8p-24f)), 0x1p-23f);
  EXPECT_TRUE(std::signbit(to_float(to_f16(-0.0f))));
}

}  // namespace
}  // namespace switchyard
