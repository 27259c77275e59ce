// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based random generator: the same (key, counter) gives the same numbers on every device,
// in any order, without state.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include <array>
#include <cstdint>

namespace switchyard {

using PhiloxBlock = std::array<uint32_t, 4>;

/// Four random words of one counter.
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A word in [0, 1) with 24 random bits, exact in f32.
constexpr float unit_float(uint32_t word) noexcept {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// A double in [0, 1) with 53 random bits.
constexpr double unit_double(uint32_t high, uint32_t low) noexcept {
  return static_cast<double>((uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
}

}  // namespace switchyard
