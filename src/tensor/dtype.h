// SPDX-License-Identifier: Apache-2.0
// Element types and their facts.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace switchyard {

enum class DType : uint8_t { f32, f16, bf16, f8_e4m3, i8, u8, i32, i64, boolean };
inline constexpr int kNumDTypes = 9;

constexpr int dtype_bytes(DType dtype) noexcept {
  constexpr int kBytes[kNumDTypes] = {4, 2, 2, 1, 1, 1, 4, 8, 1};
  return kBytes[static_cast<int>(dtype)];
}

/// Short name as used in messages and on the command line: "bf16".
constexpr std::string_view dtype_name(DType dtype) noexcept {
  constexpr std::string_view kNames[kNumDTypes] = {"f32", "f16", "bf16", "f8_e4m3", "i8",
                                                   "u8",  "i32", "i64",  "bool"};
  return kNames[static_cast<int>(dtype)];
}

constexpr bool is_plain_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// The inverse of dtype_name.
std::optional<DType> find_dtype(std::string_view name) noexcept;

}  // namespace switchyard
