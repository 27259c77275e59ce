// SPDX-License-Identifier: Apache-2.0
// Items of decode attention. The positions that a token sees are cut into units of 64, its units into equal spans of at most 8; an
// item is a span of one kv head for at most 8 of its query heads. Two spans make a pair, and pairs make the result, always in this
// order; whether one block takes a pair or only a span of it (a piece) depends on how much there is to do, and changes no bit. Cuts
// follow from the token's own position alone, so its bits do not depend on the rest of the step. A warp takes a tile of 16
// positions at once, four of them are a unit. Tokens that see few positions have no spans: attention_decode_short.cuh.
//
// Workspace  claims | counters [B, G, head tiles] of finished pieces, zero between launches | partial results [pieces]: heads
//            of a tile x Z sums, then for each head the highest score and the sum of weights, in 128 bytes
#pragma once
#include "kernels/cuda/attention_items.cuh"

namespace switchyard::cuda {

inline constexpr int kSpanUnits = 8;  ///< most units of an item
/// Most positions, in whole tiles, of a sequence without spans.
inline constexpr int kShortPositions = 128;
inline constexpr int kUnitTiles = kUnit / kCacheTile;
inline constexpr int kTileHeads = 8;  ///< columns of the mma

struct DecodeItem {
  int index = 0;  ///< of its piece, among all pieces
  int sequence = 0, piece = 0, pieces = 0, kv_head = 0, head_tile = 0;
  int span = 0, spans = 0;
  bool begins = true, ends = true;  ///< the piece
  int unit = 0, units = 0;          ///< first unit, and how many; none: there are no more items
  int start = 0, end = 0;           ///< positions that the token sees
  int token = 0, heads = 0;         ///< row of q; query heads of this item

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

/// Whether a sequence adds one token and it sees few positions.
__device__ __forceinline__ bool is_short(const Attend& a, int b) {
  if (added_tokens(a, b) != 1) return false;
  const Visible seen = visible_positions(a, b);
  return seen.end - seen.start / kCacheTile * kCacheTile <= kShortPositions;
}

/// Spans of a sequence; none when it is short, or adds several tokens, which attend_prefill takes.
__device__ __forceinline__ int num_spans(const Attend& a, int b) {
  if (added_tokens(a, b) != 1 || is_short(a, b)) return 0;
  return (visible_positions(a, b).units + kSpanUnits - 1) / kSpanUnits;
}

/// Pieces of the sequences, each of so many spans: 1 or 2.
struct Pieces {
  const ItemCounts& counts;
  int spans;
};
__device__ __forceinline__ int num_pieces(const Attend& a, const Pieces& pieces) {
  return pieces.counts.before[a.sequences] * a.kv_heads * head_tiles(a);
}

/// Makes the item its piece's span `span`.
__device__ __forceinline__ void enter_span(const Attend& a, int span, int piece_spans,
                                           DecodeItem& item) {
  const Visible seen = visible_positions(a, item.sequence);
  item.span = span;
  item.spans = (seen.units + kSpanUnits - 1) / kSpanUnits;
  const int begin = span * seen.units / item.spans;
  item.unit = seen.unit + begin;
  item.units = (span + 1) * seen.units / item.spans - begin;
  item.start = seen.start;
  item.end = seen.end;
  item.begins = span == item.piece * piece_spans;
  item.ends = span + 1 == min((item.piece + 1) * piece_spans, item.spans);
}

/// The first span of piece `index`; none, when there are no more.
__device__ __forceinline__ DecodeItem find_decode_item(const Attend& a, const Pieces& pieces,
                                                       int index) {
  DecodeItem item;
  item.index = index;
  if (index >= num_pieces(a, pieces)) return item;
  const int32_t* before = pieces.counts.before;
  item.head_tile = index % head_tiles(a);
  index /= head_tiles(a);
  item.kv_head = index % a.kv_heads;
  index /= a.kv_heads;
  item.sequence = find_sequence(pieces.counts, a.sequences, index);
  item.piece = index - before[item.sequence];
  item.pieces = before[item.sequence + 1] - before[item.sequence];
  item.token = a.seq_offset[item.sequence];
  item.heads = min(kTileHeads, shared_by(a) - item.head_tile * kTileHeads);
  enter_span(a, item.piece * pieces.spans, pieces.spans, item);
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
/// Floats of a partial result.
__host__ __device__ constexpr int64_t partial_size(const Attend& a) {
  return int64_t{most_tile_heads(a)} * a.head_dim + 32;
}
/// Its first head's sums; scores and sums of weights are behind the last one's.
__device__ __forceinline__ float* partial_of(const Attend& a, int index) {
  auto* first = reinterpret_cast<float*>(static_cast<char*>(a.workspace) + counter_bytes(a));
  return first + index * partial_size(a);
}

}  // namespace switchyard::cuda
