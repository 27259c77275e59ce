// SPDX-License-Identifier: Apache-2.0
// Decode attention over few positions: no spans, nothing to merge. An item is a sequence and a kv head, for at most 8 of its query
// heads, from the first key to the result, in units of 64 positions at fixed places:
//
//   many items  a warp takes an item. Its ring has tiles of 16 keys or values in the order of their use, over the borders of items:
//               those of the keys of a unit, then those of its values
//   few         four warps take an item, a tile of each unit each (attention_decode_unit.cuh)
// Both give the same bits: a unit's weights follow one highest score, and sums of weights are kept for each tile of a unit until the
// end. Rows that the token does not see are not read and become zeros.
#pragma once
#include "kernels/cuda/attention_decode_unit.cuh"
#include "kernels/cuda/chain.cuh"

namespace switchyard::cuda {

__device__ __forceinline__ int num_short_items(const Attend& a) {
  return a.sequences * a.kv_heads * head_tiles(a);
}

/// The first item from `index` on, in steps of `stride`, whose sequence is short; num_short_items or more: none.
__device__ __forceinline__ int next_short_item(const Attend& a, int index, int stride) {
  const int each = a.kv_heads * head_tiles(a);
  while (index < num_short_items(a) && !is_short(a, index / each)) index += stride;
  return index;
}

/// Item `index`: its unit and units count tiles here.
__device__ __forceinline__ DecodeItem short_item(const Attend& a, int index) {
  DecodeItem item;
  item.head_tile = index % head_tiles(a);
  index /= head_tiles(a);
  item.kv_head = index % a.kv_heads;
  item.sequence = index / a.kv_heads;
  const Visible seen = visible_positions(a, item.sequence);
  item.start = seen.start;
  item.end = seen.end;
  item.unit = seen.start / kCacheTile;
  item.units = (seen.end - 1) / kCacheTile - item.unit + 1;
  item.token = a.seq_offset[item.sequence];
  item.heads = min(kTileHeads, shared_by(a) - item.head_tile * kTileHeads);
  return item;
}

/// One warp queues the copies of a tile at `row` of a cache. Lanes take 16 bytes each of kRows rows at once; rows outside [low, high)
/// become zeros.
template <int kZ>
__device__ __forceinline__ void copy_tile(const void* cache, int row, int low, int high,
                                          uint32_t tile) {
  constexpr int kChunks = kZ / 8, kRows = kWarp / kChunks;
  const int lane = threadIdx.x % kWarp, first = lane / kChunks, chunk = lane % kChunks;
  const auto* from = static_cast<const bf16*>(cache) + int64_t{row} * kZ + lane * 8;
  const uint32_t to =
      tile + chunk / 8 * HalvesApart::kHalf + first * 128 + ((chunk % 8 ^ first) << 4);
  const auto copy = [&](int j, bool real) {
    copy_16((to ^ (j * kRows % 8 << 4)) + j * kRows * 128, from + j * kWarp * 8, real ? 16 : 0);
  };
  if (low <= 0 && high >= kCacheTile) {
#pragma unroll
    for (int j = 0; j < kCacheTile / kRows; ++j) copy(j, true);
    return;
  }
#pragma unroll
  for (int j = 0; j < kCacheTile / kRows; ++j) {
    const int position = first + j * kRows;
    copy(j, position >= low && position < high);
  }
}

// ---- a warp for an item

/// A warp's copies in the order of their use, in a ring of kSlots tiles.
template <int kZ, int kSlots>
class ShortFetch {
 public:
  __device__ __forceinline__ ShortFetch(const Attend& a, int index, int stride, uint32_t ring)
      : stride_(stride), ring_(ring) {
    next_ = next_short_item(a, index, stride);
    next_row_ = find_row(a, next_);
    turn(a);
  }

  /// The `i`-th oldest tile of the ring, while all are queued.
  __device__ __forceinline__ uint32_t tile(int i) const {
    const int slot = slot_ + i;
    return ring_ + (slot < kSlots ? slot : slot - kSlots) * kTileBytes<kZ>;
  }
  /// Queues the next tiles, if any, each as a group of copies.
  __device__ __forceinline__ void advance(const Attend& a, int count) {
#pragma unroll 1
    for (; count > 0; --count) {
      if (tile_ < end_) queue(a);
      copies_commit();
      slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    }
  }

 private:
  // Lane i finds the row of the item's i-th tile: one round trip for all.
  static __device__ __forceinline__ int find_row(const Attend& a, int index) {
    static_assert(kShortPositions / kCacheTile + 1 <= kWarp);
    if (index >= num_short_items(a)) return 0;
    const DecodeItem item = short_item(a, index);
    const int lane = threadIdx.x % kWarp;
    if (lane >= item.units) return 0;
    return cache_row(a, item.sequence, item.kv_head, (item.unit + lane) * kCacheTile);
  }
  // On to the next item; the rows of the one behind it are asked for.
  __device__ __forceinline__ void turn(const Attend& a) {
    tile_ = end_ = 0;
    if (next_ >= num_short_items(a)) return;
    const DecodeItem item = short_item(a, next_);
    low_ = item.start;
    high_ = item.end;
    tile_ = item.unit;
    end_ = item.unit + item.units;
    row_ = next_row_;
    next_ = next_short_item(a, next_ + stride_, stride_);
    next_row_ = find_row(a, next_);
  }
  __device__ __forceinline__ void queue(const Attend& a) {
    const int begin = low_ / kCacheTile, first = tile_ * kCacheTile;
    copy_tile<kZ>(values_ ? a.v_cache : a.k_cache, __shfl_sync(kAllLanes, row_, tile_ - begin),
                  low_ - first, high_ - first, ring_ + slot_ * kTileBytes<kZ>);
    ++tile_;
    if (tile_ % kUnitTiles != 0 && tile_ < end_) return;
    values_ = !values_;
    if (values_) {
      tile_ = max(begin, (tile_ - 1) / kUnitTiles * kUnitTiles);
    } else if (tile_ == end_) {
      turn(a);
    }
  }

  int stride_, slot_ = 0;
  uint32_t ring_;
  int tile_ = 0, end_ = 0, low_ = 0, high_ = 0, row_ = 0;  // of the item
  bool values_ = false;
  int next_, next_row_;
};

/// As DecodeState, but a sum of weights for each tile of a unit.
template <int kZ>
struct ShortState {
  float o[kZ / 16][4] = {};
  float highest[2] = {-INFINITY, -INFINITY};
  float total[kUnitTiles][2] = {};
};

template <int kZ>
__device__ __forceinline__ void raise_short(const float (&s)[kUnitTiles][4],
                                            ShortState<kZ>& state) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float top = state.highest[i];
#pragma unroll
    for (int j = 0; j < kUnitTiles; ++j) top = fmaxf(top, fmaxf(s[j][i], s[j][i + 2]));
#pragma unroll
    for (int offset = 4; offset < kWarp; offset <<= 1) {
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
    }
    const float shrink = exp2_fast(state.highest[i] - top);
    state.highest[i] = top;
#pragma unroll
    for (int j = 0; j < kUnitTiles; ++j) state.total[j][i] = __fmul_rn(state.total[j][i], shrink);
#pragma unroll
    for (int t = 0; t < kZ / 16; ++t) {
      state.o[t][i] *= shrink;
      state.o[t][i + 2] *= shrink;
    }
  }
}

/// The state of all keys to the result.
template <int kZ>
__device__ __forceinline__ void write_short(const Attend& a, const DecodeItem& item,
                                            const ShortState<kZ>& state) {
  const int lane = threadIdx.x % kWarp, head = lane / 4;
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float all = 0;
#pragma unroll
    for (int j = 0; j < kUnitTiles; ++j) all += sum_of_keys(state.total[j][i]);
    inverse[i] = 1.0f / all;
  }
  auto* to = static_cast<bf16*>(a.out) + (first_head(a, item) + head) * kZ + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kZ / 8; ++i) {
    const float* o = &state.o[i / 2][i % 2 * 2];
    const uint32_t pair = transpose_matrix(pack_bf16(o[0] * inverse[0], o[1] * inverse[1]));
    if (head < item.heads) *reinterpret_cast<uint32_t*>(to + i * 8) = pair;
  }
}

/// Whole warp, the `index`-th of `stride`: the items of all short sequences.
template <int kZ, int kSlots>
__device__ __forceinline__ void attend_short(const Attend& a, int index, int stride,
                                             uint32_t ring) {
  static_assert(kSlots >= kUnitTiles);
  ShortFetch<kZ, kSlots> fetch(a, index, stride, ring);
  wait_for_previous();  // what is above depends on the step's arrays alone
  fetch.advance(a, kSlots);
  for (index = next_short_item(a, index, stride); index < num_short_items(a);
       index = next_short_item(a, index + stride, stride)) {
    const DecodeItem item = short_item(a, index);
    ShortState<kZ> state;
#pragma unroll 1
    for (int unit = item.start / kUnit; unit * kUnit < item.end; ++unit) {
      const int first = unit * kUnit, low = item.start - first, high = item.end - first;
      const int begin = max(low, 0) / kCacheTile;  // tiles that the token sees
      const int end = (min(high, kUnit) + kCacheTile - 1) / kCacheTile;
      float s[kUnitTiles][4] = {};
      Queries<kZ> q;  // anew for each unit: they need not stay in registers
      load_queries<kZ>(static_cast<const bf16*>(a.q) + first_head(a, item) * kZ, kZ * 2, item.heads,
                       q);
      copies_wait<kSlots - kUnitTiles>();
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kUnitTiles; ++j) {
        if (j >= begin && j < end) score_tile<kZ, HalvesApart>(q, fetch.tile(j - begin), s[j]);
      }
      __syncwarp();  // the slots may be filled again
      fetch.advance(a, end - begin);
      bool grown = false;
#pragma unroll
      for (int j = 0; j < kUnitTiles; ++j) {
        grown |= hide_keys(a.scale * kLog2e, low - j * kCacheTile, high - j * kCacheTile,
                           state.highest, s[j]);
      }
      if (__any_sync(kAllLanes, grown)) raise_short<kZ>(s, state);
      uint32_t p[kUnitTiles][2];
#pragma unroll
      for (int j = 0; j < kUnitTiles; ++j) {
        weights_of(s[j], state.highest, p[j]);
        add_weights(p[j], state.total[j]);
      }
      copies_wait<kSlots - kUnitTiles>();
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kUnitTiles; ++j) {
        if (j < begin || j >= end) continue;
        accumulate_tile<kZ, HalvesApart>(p[j], fetch.tile(j - begin), state.o);
      }
      __syncwarp();
      fetch.advance(a, end - begin);
    }
    write_short<kZ>(a, item, state);
  }
}

// ---- four warps for an item

/// Whole group of four warps, with a barrier of its own: item `index`, if it is short. The ring has 3 units of keys or values.
template <int kZ>
__device__ __forceinline__ void attend_short_group(const Attend& a, int index, int barrier,
                                                   UnitExchange& exchange, uint32_t ring) {
  constexpr int kSlots = 3;
  if (next_short_item(a, index, num_short_items(a)) != index || index >= num_short_items(a)) return;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % kUnitTiles;
  const DecodeItem item = short_item(a, index);
  const int begin = item.start / kUnit * kUnit + warp * kCacheTile;  // the warp's first tile
  const bool real =
      item.sees(begin + lane * kUnit, kCacheTile) && lane < kShortPositions / kUnit + 2;
  const int own = real ? cache_row(a, item.sequence, item.kv_head, begin + lane * kUnit) : -1;
  int queued = 0;
  const auto advance = [&] {
    const int unit = queued / 2, first = begin + unit * kUnit;
    const int row = __shfl_sync(kAllLanes, own, unit);
    if (row >= 0) {
      copy_tile<kZ>(queued % 2 == 0 ? a.k_cache : a.v_cache, row, item.start - first,
                    item.end - first,
                    ring + (queued % kSlots * kUnitTiles + warp) * kTileBytes<kZ>);
    }
    copies_commit();
    ++queued;
  };
  wait_for_previous();  // what is above depends on the step's arrays alone
#pragma unroll 1
  for (int i = 0; i < kSlots; ++i) advance();
  Queries<kZ> q;
  load_queries<kZ>(static_cast<const bf16*>(a.q) + first_head(a, item) * kZ, kZ * 2, item.heads, q);
  UnitState<kZ> state;
  int slot = 0;
  const auto next_slot = [&] {
    const uint32_t at = ring + slot * kUnitTiles * kTileBytes<kZ>;
    slot = slot + 1 == kSlots ? 0 : slot + 1;
    return at;
  };
#pragma unroll 1
  for (int first = item.start / kUnit * kUnit; first < item.end; first += kUnit) {
    const int low = item.start - first, high = item.end - first, offset = warp * kCacheTile;
    const uint32_t weights = shared_address(exchange.weights[first / kUnit % 2]);
    float s[4] = {};
    copies_wait<kSlots - 1>();
    __syncwarp();
    score_tile<kZ, HalvesApart>(q, next_slot() + warp * kTileBytes<kZ>, s);
    __syncwarp();  // the warp's part of the slot may be filled again
    advance();
    copies_wait<kSlots - 1>();  // the values, which all see after the barrier in weigh_unit
    weigh_unit<kZ>(a.scale * kLog2e, low - offset, high - offset, barrier, weights, s, exchange,
                   state);
    accumulate_unit<kZ, HalvesApart>(weights, next_slot(), seen_tiles(low, high), state);
    named_barrier(barrier, kUnitTiles * kWarp);
    advance();
  }
  write_unit<kZ>(a, item, barrier, exchange, state);
}

}  // namespace switchyard::cuda
