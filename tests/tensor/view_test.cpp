// SPDX-License-Identifier: Apache-2.0
// Views know their type, their bytes, and whether they are dense.
#include "tensor/view.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(View, OfAnArray) {
  const float data[6] = {};
  const TensorView view = TensorView::of(data, {2, 3});
  EXPECT_EQ(view.as<float>(), data);
  EXPECT_EQ(view.as<const float>(), data);
  EXPECT_EQ(view.bytes(), 24);
  EXPECT_TRUE(view.dense());
  EXPECT_FALSE(view.empty());
  EXPECT_TRUE(TensorView().empty());
}

TEST(View, WithGapsIsNotDense) {
  float data[8] = {};
  TensorView view = TensorView::of(data, {2, 3});
  view.stride[0] = 4;
  EXPECT_FALSE(view.dense());
}

TEST(View, EveryTypeHasItsName) {
  EXPECT_EQ(kDTypeOf<float>, DType::f32);
  EXPECT_EQ(kDTypeOf<Bf16>, DType::bf16);
  EXPECT_EQ(kDTypeOf<F16>, DType::f16);
  EXPECT_EQ(kDTypeOf<int32_t>, DType::i32);
  EXPECT_EQ(kDTypeOf<int64_t>, DType::i64);
}

TEST(ViewDeathTest, ChecksItsType) {
  float data[1] = {};
  const TensorView view = TensorView::of(data, {1});
  EXPECT_DEATH((void)view.as<int32_t>(), "view is f32");
}

}  // namespace
}  // namespace switchyard
