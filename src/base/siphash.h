// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 with a result of 128 bits: a keyed hash. Who does not know the key can neither guess a result nor find two
// inputs with the same one, which a plain hash would allow.
// Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012; the 128-bit variant is that of the
// authors' reference code.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace switchyard {

using SipKey = std::array<uint64_t, 2>;

namespace siphash {

struct State {
  uint64_t v0, v1, v2, v3;

  void rounds(int count) noexcept {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1, v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }
  void absorb(uint64_t word) noexcept {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  uint64_t mix() const noexcept { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace siphash

/// Of the words of `head` and then `bytes`, as one text. The two words of the result, low one first.
inline std::array<uint64_t, 2> siphash_128(const SipKey& key, std::span<const std::byte> bytes,
                                           std::span<const uint64_t> head = {}) noexcept {
  siphash::State state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
                       key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  for (const uint64_t word : head) state.absorb(word);
  size_t at = 0;
  for (uint64_t word = 0; at + 8 <= bytes.size(); at += 8) {
    std::memcpy(&word, bytes.data() + at, 8);
    state.absorb(word);
  }
  uint64_t tail = uint64_t{8 * head.size() + bytes.size()} << 56;
  if (at < bytes.size()) std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  state.absorb(tail);
  state.v2 ^= 0xee;
  state.rounds(4);
  const uint64_t low = state.mix();
  state.v1 ^= 0xdd;
  state.rounds(4);
  return {low, state.mix()};
}

}  // namespace switchyard
