// SPDX-License-Identifier: Apache-2.0
// TensorView: a pointer with a shape. Never owns; copies are shallow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/float_types.h"
#include "tensor/shape.h"

namespace switchyard {

/// Where bytes live.
struct DeviceId {
  enum class Kind : uint8_t { cpu, cuda } kind = Kind::cpu;
  int8_t index = 0;
  friend bool operator==(DeviceId, DeviceId) = default;
};

template <class T>
inline constexpr DType kDTypeOf = DType::u8;
template <>
inline constexpr DType kDTypeOf<float> = DType::f32;
template <>
inline constexpr DType kDTypeOf<Bf16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<F16> = DType::f16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::i32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::i64;

struct TensorView {
  void* data = nullptr;
  Shape shape;
  Strides stride{};
  DType dtype = DType::f32;
  DeviceId device;

  TensorView() = default;
  /// A dense row-major view.
  TensorView(void* at, Shape extents, DType type)
      : data(at), shape(extents), stride(row_major(extents)), dtype(type) {}
  template <class T>
  static TensorView of(T* at, Shape extents) {
    return {const_cast<std::remove_const_t<T>*>(at), extents, kDTypeOf<std::remove_const_t<T>>};
  }

  bool empty() const noexcept { return data == nullptr; }
  /// Typed pointer; the type must match (checked).
  template <class T>
  T* as() const {
    SWITCHYARD_CHECK(kDTypeOf<std::remove_const_t<T>> == dtype, "view is {}", dtype_name(dtype));
    return static_cast<T*>(data);
  }
  int64_t bytes() const noexcept { return shape.elements() * dtype_bytes(dtype); }
  bool dense() const noexcept { return stride == row_major(shape); }
};

}  // namespace switchyard
