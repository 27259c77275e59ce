// SPDX-License-Identifier: Apache-2.0
// How the CPU attention kernels cut their work. The arithmetic stands in attention.inl.h, once per instruction set; what
// is here decides who computes what, and is plain code.
//
// A tile is one kv head of one sequence and some of its tokens: the queries of that head's group are the tile's rows and
// share every key and value that is loaded. Keys are cut into spans at multiples of kSpanKeys, counted from position 0.
// A span starts its own online softmax, and the spans of a tile are merged in ascending order. So a row's bits are the
// same whether one thread walks all spans or many threads take one each, and whatever else is in the step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops/attention.h"

namespace switchyard::cpu {

/// Query rows (tokens times heads of a group) of a tile. Widening a run of keys and values to f32 costs about as much as
/// five rows of arithmetic; 64 rows hide it and their state still fits in L2 with the run.
inline constexpr int kMaxQueryRows = 64;
/// Keys of a span; a multiple of both runs.
inline constexpr int64_t kSpanKeys = 512;
/// Most keys of a run: four registers of the widest instruction set.
inline constexpr int kMaxRun = 64;
/// Most f32 of a register.
inline constexpr int kMaxWidth = 16;

/// Tokens of a full tile: as many as fit in kMaxQueryRows, at least one.
constexpr int tile_tokens(const Attention::Problem& p) noexcept {
  const int group = p.heads / p.kv_heads;
  return group >= kMaxQueryRows ? 1 : kMaxQueryRows / group;
}
/// Rows of a full tile, rounded up to what AMX takes at a time: memory is laid out for so many.
constexpr int tile_rows(const Attention::Problem& p) noexcept {
  return (tile_tokens(p) * (p.heads / p.kv_heads) + 15) / 16 * 16;
}
/// Head size rounded up to whole registers of either instruction set.
constexpr int64_t padded_head(const Attention::Problem& p) noexcept {
  return (p.head_dim + kMaxWidth - 1) / kMaxWidth * kMaxWidth;
}

struct AttentionTile {
  int sequence = 0, kv_head = 0;            ///< b, g
  int64_t first_token = 0, num_tokens = 0;  ///< within the sequence's tokens of this step
};

/// Positions [begin, end).
struct KeyRange {
  int64_t begin = 0, end = 0;
};
/// What at least one row of the tile sees.
KeyRange seen_keys(const Attention::Problem& p, const Attention::Args& args,
                   const AttentionTile& tile) noexcept;

/// The online softmax of the rows of a tile over the keys so far. All arrays are 64-byte aligned.
struct AttentionState {
  float* out = nullptr;      ///< [rows, Z'] sum of e^(s - highest) v
  float* sum = nullptr;      ///< [rows, 16] sum of e^(s - highest), by lane
  float* highest = nullptr;  ///< [rows] highest score
};

/// The steps that an instruction set provides.
struct AttentionSteps {
  /// Starts `state` and takes the keys of the span that rows of the tile see. scratch: attention_scratch() floats.
  void (*span)(const Attention::Problem&, const Attention::Args&, const AttentionTile&, KeyRange,
               const AttentionState& state, float* scratch) noexcept;
  /// Adds a later span to an earlier one.
  void (*merge)(const Attention::Problem&, int64_t rows, const AttentionState& earlier,
                const AttentionState& later) noexcept;
  /// Divides by the sum and writes the rows of the tile to args.out.
  void (*finish)(const Attention::Problem&, const Attention::Args&, const AttentionTile&,
                 const AttentionState&) noexcept;
};

/// f32 values of one AttentionState.
constexpr int64_t attention_state(const Attention::Problem& p) noexcept {
  const int64_t rows = tile_rows(p);
  return rows * (padded_head(p) + kMaxWidth) + (rows + kMaxWidth - 1) / kMaxWidth * kMaxWidth;
}
/// Where bf16 weights [rows, run] begin in a span's scratch, in f32 values: behind keys [Z', run], values [run, Z'],
/// scores [rows, run] and 32 bytes about each row. The tile kernel alone has such weights, and keeps bf16 keys, values
/// and queries where the others have widened keys and values.
constexpr int64_t attention_weights_at(const Attention::Problem& p) noexcept {
  const int64_t rows = tile_rows(p);
  return kMaxRun * (2 * padded_head(p) + rows) + (rows + 1) / 2 * kMaxWidth;
}
/// f32 values of a span's scratch.
constexpr int64_t attention_scratch(const Attention::Problem& p) noexcept {
  return attention_weights_at(p) + int64_t{tile_rows(p)} * kMaxRun / 2;
}
int64_t attention_memory(const Attention::Problem& p, int num_threads) noexcept;

/// Runs attention by the steps of one instruction set.
void run_attention(const Attention::Problem& p, const Attention::Args& args,
                   std::span<std::byte> workspace, const Stream& stream,
                   const AttentionSteps& steps) noexcept;

}  // namespace switchyard::cpu
