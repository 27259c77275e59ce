// SPDX-License-Identifier: Apache-2.0
// splitmix64 (Steele, Lea, Flood 2014): the same few lines give the same numbers in every language, to us and to peers. Includes nothing
// of ours, as peers are built without our tree.
#pragma once
#include <cstdint>

struct SplitMix64 {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
};
