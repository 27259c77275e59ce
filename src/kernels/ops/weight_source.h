// SPDX-License-Identifier: Apache-2.0
// Reads the elements of a checkpoint's matrix, whatever its float type and strides: the common part
// of all packings.
#pragma once
#include "base/check.h"
#include "tensor/float_types.h"
#include "tensor/view.h"

namespace switchyard {

constexpr float to_float(float value) noexcept { return value; }

/// Element conversion: exact where the types agree, through f32 otherwise.
template <class To, class From>
constexpr To convert_weight(From from) noexcept {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<To, float>) {
    return to_float(from);
  } else {
    return to_bf16(to_float(from));
  }
}

/// Calls use(const T* data) with the view's element type: float, F16 or Bf16.
template <class Use>
void with_weight_type(const TensorView& view, Use&& use) {
  switch (view.dtype) {
    case DType::f32:
      return use(view.as<const float>());
    case DType::f16:
      return use(view.as<const F16>());
    case DType::bf16:
      return use(view.as<const Bf16>());
    default:
      SWITCHYARD_UNREACHABLE("a weight of {}", dtype_name(view.dtype));
  }
}

}  // namespace switchyard
