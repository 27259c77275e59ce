// SPDX-License-Identifier: Apache-2.0
// Types, shapes, storage and comparison.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/compare.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"
#include "tensor/float_types.h"
#include "tensor/storage.h"
#include "tensor/view.h"

namespace switchyard {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(find_dtype("f99"));
}

TEST(Bf16, EveryValueReadsBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Bf16 value{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(value)))));
    } else {
      EXPECT_EQ(to_bf16(to_float(value)).bits, value.bits);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);            // a tie, down to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);  // a tie, up to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1.01p-8f)), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(F16, EveryValueReadsBackAndTiesGoToEven) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const F16 value{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(to_float(value)))));
    } else {
      EXPECT_EQ(to_f16(to_float(value)).bits, value.bits) << bits;
    }
  }
  EXPECT_EQ(to_float(to_f16(65504.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.0f))));
  EXPECT_EQ(to_float(to_f16(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(to_float(to_f16(0x1p-25f)), 0.0f);
  EXPECT_EQ(to_float(to_f16(0x1.8p-24f)), 0x1p-23f);
}

TEST(Shape, CountsAndRefusesOverflow) {
  EXPECT_EQ((Shape{2, 3, 4}).elements(), 24);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{2, 0, 4}).checked_elements(), 0);
  EXPECT_FALSE((Shape{int64_t{1} << 40, int64_t{1} << 40}).checked_elements());
  EXPECT_FALSE((Shape{-1, 2}).checked_elements());
  EXPECT_EQ((Shape{2, 3}).text(), "[2, 3]");
  EXPECT_EQ(row_major({2, 3, 4})[0], 12);
}

TEST(View, ChecksItsType) {
  float data[6] = {};
  const TensorView view = TensorView::of(data, {2, 3});
  EXPECT_EQ(view.as<float>(), data);
  EXPECT_EQ(view.bytes(), 24);
  EXPECT_TRUE(view.dense());
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(view.as<int32_t>(), "view is f32");
}

TEST(Storage, IsZeroedAlignedAndRefusesTheAbsurd) {
  for (const int64_t size : {int64_t{1}, int64_t{100}, int64_t{8} << 20}) {
    const auto storage = Storage::allocate(size);
    ASSERT_TRUE(storage.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % 64, 0u);
    EXPECT_EQ(storage->data()[0], std::byte{0});
    EXPECT_EQ(storage->data()[size - 1], std::byte{0});
  }
  EXPECT_TRUE(Storage::allocate(0)->empty());
  for (const int64_t size : {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 60}) {
    const auto storage = Storage::allocate(size);
    ASSERT_FALSE(storage.ok());
    EXPECT_EQ(storage.error().code, Code::out_of_memory);
  }
}

TEST(Convert, WidensEveryPlainFloat) {
  const float values[3] = {1.5f, -0.25f, 1024.0f};
  Bf16 bf16[3];
  convert_to_bf16(values, 3, bf16);
  const F16 f16[3] = {to_f16(values[0]), to_f16(values[1]), to_f16(values[2])};
  float out[3];
  convert_to_f32(bf16, DType::bf16, 3, out);
  EXPECT_EQ(out[1], values[1]);
  convert_to_f32(f16, DType::f16, 3, out);
  EXPECT_EQ(out[2], values[2]);
  convert_to_f32(values, DType::f32, 3, out);
  EXPECT_EQ(out[0], values[0]);
}

TEST(Compare, FindsTheWorstAndTheNonFinite) {
  const std::vector<float> expected = {1, 2, 3, 4};
  const Comparison same = compare(expected, expected);
  EXPECT_EQ(same.nmse, 0);
  EXPECT_EQ(same.max_error, 0);
  const Comparison off = compare(std::vector<float>{1, 2.5f, 3, 4.25f}, expected);
  EXPECT_EQ(off.worst_index, 1);
  EXPECT_NEAR(off.nmse, (0.25 + 0.0625) / 30, 1e-12);
  const Comparison bad = compare(std::vector<float>{1, 2, NAN, 9}, expected);
  EXPECT_FALSE(bad.finite);
  EXPECT_EQ(bad.worst_index, 2);
  EXPECT_TRUE(std::isinf(bad.relative_error));
  EXPECT_TRUE(std::isinf(compare(std::vector<float>{1}, std::vector<float>{0}).nmse));
}

}  // namespace
}  // namespace switchyard
