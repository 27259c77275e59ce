// SPDX-License-Identifier: Apache-2.0
// Names, sizes and plain conversion of element types.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace switchyard {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(find_dtype("f99"));
  EXPECT_FALSE(find_dtype(""));
}

TEST(DType, SizesAndFloatsAreRight) {
  EXPECT_EQ(dtype_bytes(DType::f32), 4);
  EXPECT_EQ(dtype_bytes(DType::bf16), 2);
  EXPECT_EQ(dtype_bytes(DType::f8_e4m3), 1);
  EXPECT_EQ(dtype_bytes(DType::i64), 8);
  EXPECT_EQ(dtype_bytes(DType::boolean), 1);
  EXPECT_TRUE(is_plain_float(DType::f16));
  EXPECT_FALSE(is_plain_float(DType::f8_e4m3));
  EXPECT_FALSE(is_plain_float(DType::i32));
}

TEST(Convert, WidensEveryPlainFloat) {
  const float values[3] = {1.5f, -0.25f, 1024.0f};
  Bf16 bf16[3];
  convert_to_bf16(values, 3, bf16);
  const F16 f16[3] = {to_f16(values[0]), to_f16(values[1]), to_f16(values[2])};
  float from_bf16[3], from_f16[3], from_f32[3];
  convert_to_f32(bf16, DType::bf16, 3, from_bf16);
  convert_to_f32(f16, DType::f16, 3, from_f16);
  convert_to_f32(values, DType::f32, 3, from_f32);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(from_bf16[i], values[i]);
    EXPECT_EQ(from_f16[i], values[i]);
    EXPECT_EQ(from_f32[i], values[i]);
  }
}

TEST(ConvertDeathTest, IntegersAreNoPlainFloats) {
  const int32_t from = 1;
  float to = 0;
  EXPECT_DEATH(convert_to_f32(&from, DType::i32, 1, &to), "i32 is no plain float");
}

}  // namespace
}  // namespace switchyard
