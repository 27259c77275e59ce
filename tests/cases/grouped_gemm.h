// SPDX-License-Identifier: Apache-2.0
// The cases of grouped GEMM, run on every entry of the table: rows per slot, sizes, fusion, bias.
// Sizes are small, because the reference is plain; each case stands for a border that a fast kernel
// has.
#pragma once
#include <string_view>
#include <vector>

#include "kernels/ops/grouped_gemm.h"

namespace switchyard::cases {

struct GroupedGemmCase {
  std::string_view name;
  int64_t n, k;
  std::vector<int> rows;  ///< of each slot
  Fusion fusion = Fusion::none;
  bool bias = false;
};

/// `count` slots of which slot s has rows(s).
template <class Rows>
std::vector<int> slots(int count, Rows&& rows) {
  std::vector<int> result;
  for (int s = 0; s < count; ++s) result.push_back(rows(s));
  return result;
}

inline std::vector<GroupedGemmCase> grouped_gemm_cases() {
  constexpr Fusion kSwiglu = Fusion::swiglu;
  return {
      {"one output of one input", 1, 1, {1}},
      {"one output of one input, fused", 1, 1, {1}, kSwiglu, true},
      {"a single row", 64, 96, {1}},
      {"no rows at all", 64, 96, {0, 0, 0}, kSwiglu},
      {"few rows, all counts up to 13", 32, 64, slots(14, [](int s) { return s; })},
      {"around a tile of 16 rows", 32, 64, {15, 16, 17}, kSwiglu},
      {"around a block of 32 rows", 64, 32, {31, 32, 33}},
      {"around a block of 32 rows, fused", 64, 32, {31, 32, 33}, kSwiglu, true},
      {"two and three blocks", 33, 65, {63, 64, 65, 96}, kSwiglu},
      {"primes", 67, 61, {7, 0, 13, 1, 29, 37}, Fusion::none, true},
      {"primes, fused", 67, 61, {7, 0, 13, 1, 29, 37}, kSwiglu, true},
      {"k below a step", 64, 3, {2, 5}},
      {"k one above a step", 32, 33, {1, 4, 20}},
      {"k one below two steps", 32, 63, {3, 40}, kSwiglu},
      {"n below a panel", 5, 128, {3, 18}, kSwiglu},
      {"n one above two panels", 65, 64, {1, 6, 33}},
      {"empty slots at both ends", 32, 32, {0, 0, 3, 0, 9, 0}},
      {"one expert takes all of 8", 96, 64, slots(8, [](int s) { return s == 5 ? 129 : 0; }),
       kSwiglu},
      {"one expert takes all of 256", 40, 64, slots(256, [](int s) { return s == 255 ? 70 : 0; })},
      {"256 experts, one row each", 32, 32, slots(256, [](int) { return 1; }), kSwiglu},
      {"64 experts, skewed", 48, 96, slots(64, [](int s) { return 100 / (s + 1); }), kSwiglu},
      {"128 experts, every third idle", 32, 40, slots(128, [](int s) { return s % 3; })},
      {"many rows of few outputs", 8, 72, {700}},
      {"more rows than a task takes", 64, 48, {5, 530}, kSwiglu},
      {"k beyond what stays in cache", 40, 4128, {250}},
      {"k beyond what stays in cache, fused", 70, 2080, {300, 3}, kSwiglu, true},
      {"a vocabulary", 1031, 64, {1}},
      {"a vocabulary, several rows", 1031, 64, {9}, Fusion::none, true},
  };
}

}  // namespace switchyard::cases
