// SPDX-License-Identifier: Apache-2.0
// bf16 and f16 on the host: storage types with exact widening and round-to-nearest-even narrowing.
// NaN stays NaN (quiet); overflow becomes infinity; f16 subnormals are exact.
#pragma once
#include <bit>
#include <cstdint>

namespace switchyard {

/// bfloat16: the upper half of an f32.
struct Bf16 {
  uint16_t bits = 0;
};

constexpr float to_float(Bf16 value) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

constexpr Bf16 to_bf16(float value) noexcept {
  const auto u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16)};
}

/// IEEE binary16.
struct F16 {
  uint16_t bits = 0;
};

constexpr float to_float(F16 value) noexcept {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  const uint32_t mantissa = value.bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

constexpr F16 to_f16(float value) noexcept {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};
  if (magnitude < 0x38800000u) {  // subnormal or zero: let the f32 adder round at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u))};
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace switchyard
