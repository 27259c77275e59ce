// SPDX-License-Identifier: Apache-2.0
// Items of decode attention. The positions that a token sees are cut into units of 64, its units into equal spans of at most 8;
// an item is a span of one kv head for at most 8 of its query heads. Cuts follow from the token's own position alone, so its
// bits do not depend on the rest of the step. A warp takes a tile of 16 positions at once, four of them are a unit.
//
// Workspace  claims | counters [B, G, head tiles] of finished spans, zero between launches | partial results [items][heads
//            of a tile][4 + Z] floats: highest score, sum of weights, two unused, Z sums
#pragma once
#include "kernels/cuda/attention_items.cuh"

namespace switchyard::cuda {

inline constexpr int kSpanUnits = 8;  ///< most units of an item
inline constexpr int kUnitTiles = kUnit / kCacheTile;
inline constexpr int kTileHeads = 8;  ///< columns of the mma

struct DecodeItem {
  int index = 0;  ///< among all items
  int sequence = 0, span = 0, spans = 0, kv_head = 0, head_tile = 0;
  int unit = 0, units = 0;   ///< first unit, and how many; none: there are no more items
  int start = 0, end = 0;    ///< positions that the token sees
  int token = 0, heads = 0;  ///< row of q; query heads of this item

  /// Whether the token sees some of `count` positions from `first` on.
  __device__ bool sees(int first, int count) const { return first < end && first + count > start; }
};

__host__ __device__ constexpr int shared_by(const Attend& a) { return a.heads / a.kv_heads; }
__host__ __device__ constexpr int head_tiles(const Attend& a) {
  return (shared_by(a) + kTileHeads - 1) / kTileHeads;
}
__host__ __device__ constexpr int most_tile_heads(const Attend& a) {
  return shared_by(a) < kTileHeads ? shared_by(a) : kTileHeads;
}

struct Visible {
  int start, end, unit, units;
};
__device__ __forceinline__ Visible visible_positions(const Attend& a, int b) {
  const int position = a.context_len[b];
  const int start = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const int unit = start / kUnit;
  return {start, position + 1, unit, position / kUnit - unit + 1};
}

/// Spans of a sequence; none when it adds several tokens, which attend_prefill takes.
__device__ __forceinline__ int num_spans(const Attend& a, int b) {
  if (added_tokens(a, b) != 1) return 0;
  return (visible_positions(a, b).units + kSpanUnits - 1) / kSpanUnits;
}
__device__ __forceinline__ int num_decode_items(const Attend& a, const ItemCounts& spans) {
  return spans.before[a.sequences] * a.kv_heads * head_tiles(a);
}

__device__ __forceinline__ DecodeItem find_decode_item(const Attend& a, const ItemCounts& spans,
                                                       int index) {
  DecodeItem item;
  item.index = index;
  item.head_tile = index % head_tiles(a);
  index /= head_tiles(a);
  item.kv_head = index % a.kv_heads;
  index /= a.kv_heads;
  item.sequence = find_sequence(spans, a.sequences, index);
  item.span = index - spans.before[item.sequence];
  item.spans = spans.before[item.sequence + 1] - spans.before[item.sequence];
  const Visible seen = visible_positions(a, item.sequence);
  const int begin = item.span * seen.units / item.spans;
  item.unit = seen.unit + begin;
  item.units = (item.span + 1) * seen.units / item.spans - begin;
  item.start = seen.start;
  item.end = seen.end;
  item.token = a.seq_offset[item.sequence];
  item.heads = min(kTileHeads, shared_by(a) - item.head_tile * kTileHeads);
  return item;
}

/// First query head of an item, as a row of q and out.
__device__ __forceinline__ int64_t first_head(const Attend& a, const DecodeItem& item) {
  return int64_t{item.token} * a.heads + item.kv_head * shared_by(a) + item.head_tile * kTileHeads;
}

__host__ __device__ constexpr int64_t counter_bytes(const Attend& a) {
  return kClaimBytes +
         (int64_t{kMaxDecodeSequences} * a.kv_heads * head_tiles(a) * 4 + 255) / 256 * 256;
}
__device__ __forceinline__ int32_t* counter_of(const Attend& a, const DecodeItem& item) {
  auto* first = reinterpret_cast<int32_t*>(static_cast<char*>(a.workspace) + kClaimBytes);
  return first + (int64_t{item.sequence} * a.kv_heads + item.kv_head) * head_tiles(a) +
         item.head_tile;
}
template <int kZ>
__device__ __forceinline__ float* partial_of(const Attend& a, int index, int head) {
  auto* first = reinterpret_cast<float*>(static_cast<char*>(a.workspace) + counter_bytes(a));
  return first + (int64_t{index} * most_tile_heads(a) + head) * (kZ + 4);
}

}  // namespace switchyard::cuda
