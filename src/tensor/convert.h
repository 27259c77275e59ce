// SPDX-License-Identifier: Apache-2.0
// Element conversion between the plain float types, for loading and tests (not for inner loops).
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace switchyard {

/// Reads `count` elements of a plain float dtype (f32, f16, bf16) as f32.
void convert_to_f32(const void* from, DType dtype, int64_t count, float* to) noexcept;
/// Writes `count` f32 values as bf16, rounding to nearest even.
void convert_to_bf16(const float* from, int64_t count, void* to) noexcept;

}  // namespace switchyard
