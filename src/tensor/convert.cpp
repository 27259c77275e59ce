// SPDX-License-Identifier: Apache-2.0
// Plain loops over the exact conversions of float_types.h.
#include "tensor/convert.h"

#include <cstring>

#include "base/check.h"
#include "tensor/float_types.h"

namespace switchyard {
namespace {

template <class T>
void widen(const void* from, int64_t count, float* to) noexcept {
  const T* source = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = to_float(source[i]);
}

}  // namespace

void convert_to_f32(const void* from, DType dtype, int64_t count, float* to) noexcept {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::f16:
      return widen<F16>(from, count, to);
    case DType::bf16:
      return widen<Bf16>(from, count, to);
    default:
      SWITCHYARD_UNREACHABLE("{} is no plain float", dtype_name(dtype));
  }
}

void convert_to_bf16(const float* from, int64_t count, void* to) noexcept {
  Bf16* out = static_cast<Bf16*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(from[i]);
}

}  // namespace switchyard
