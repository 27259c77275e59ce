// SPDX-License-Identifier: Apache-2.0
// How the CPU attention kernels cut their work, and the scratch that a thread needs. Plain code, outside any target
// region.
#pragma once
#include <cstdint>

#include "kernels/ops/attention.h"

namespace switchyard::cpu {

/// Query rows (tokens times heads of a group) that share each run of keys and values.
inline constexpr int kMaxQueryRows = 32;

/// Tokens of one tile: as many as fit in kMaxQueryRows, at least one.
constexpr int tile_tokens(const Attention::Problem& p) noexcept {
  const int group = p.heads / p.kv_heads;
  return group >= kMaxQueryRows ? 1 : kMaxQueryRows / group;
}
constexpr int tile_rows(const Attention::Problem& p) noexcept {
  return tile_tokens(p) * (p.heads / p.kv_heads);
}
/// Head size rounded up to whole registers of either instruction set.
constexpr int64_t padded_head(const Attention::Problem& p) noexcept {
  return (p.head_dim + 15) / 16 * 16;
}
/// One run of keys is one register wide; 16 suffices for both instruction sets.
inline constexpr int kMaxRun = 16;

/// f32 values of scratch per thread: keys [Z, run], values [run, Z'], outputs [rows, Z'], scores [rows, run], and per
/// row its maximum and sum.
constexpr int64_t attention_floats(const Attention::Problem& p) noexcept {
  const int64_t head = padded_head(p), rows = tile_rows(p);
  return head * kMaxRun * 2 + rows * (head + kMaxRun + 2) + 16;
}
inline int64_t attention_memory(const Attention::Problem& p, int num_threads) noexcept {
  return num_threads * attention_floats(p) * static_cast<int64_t>(sizeof(float));
}

}  // namespace switchyard::cpu
