// SPDX-License-Identifier: Apache-2.0
// Tiles of q, k and v whose norms go over all heads of a kind (dense_tile_sm90a.cuh): tiles hand each other the squares of their rows, then
// round and go on through norm, clip and turn to q or a cache.
//
//   tile     192 outputs: of three heads the values z in [32 u, 32 u + 32) and their partners 64 further, u = 0 or 1, so each value meets its
//            partner in the same thread. In shared memory they lie head by head, first a head's 32 low ones
//   words    for queries and for keys: launches that are over, for each 16 rows; the squares of each row by each tile that has some. A word
//            carries the number of its launch, so nobody needs a fence, and nothing is reset (dense_tile.h)
//   waiting  for the other tiles of the same rows: all blocks must be on the device at once
// Source: Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#pragma once
#include "kernels/cuda/dense_tile.h"
#include "kernels/cuda/dense_tile_heads_sm90a.cuh"
#include "kernels/cuda/tagged.cuh"

namespace switchyard::cuda {

struct FullHeadsTile : DenseTile<2, 192, 1, 2, 5> {
  static constexpr int kHeads = 3, kBoxRows = 32;
  static __device__ __forceinline__ int first_head(int column) { return column / 384 * kHeads; }
  /// The first of this tile's 32 values of each half.
  static __device__ __forceinline__ int first_value(int column) {
    return column / kColumns % 2 * 32;
  }
  static __device__ __forceinline__ int box_row(int column, int i) {
    return (first_head(column) + i / 2) * kHead + i % 2 * (kHead / 2) + first_value(column);
  }
};

/// Queries (0) or keys (1): their heads, and the tiles that have some of them.
struct HeadKind {
  int first = 0, count = 0;           ///< heads
  int first_tile = 0, num_tiles = 0;  ///< columns of tiles
  __host__ __device__ __forceinline__ HeadKind(const PrepareHeads& a, int kind)
      : first(kind == 0 ? 0 : a.heads), count(kind == 0 ? a.heads : a.kv_heads) {
    first_tile = first / FullHeadsTile::kHeads * 2;
    num_tiles = ((first + count - 1) / FullHeadsTile::kHeads + 1) * 2 - first_tile;
  }
  __device__ __forceinline__ bool has(int head) const {
    return head >= first && head < first + count;
  }
};

/// What a warp's 16 rows hand on and read of a kind. Lanes of a row share out the tiles.
class SquaresOfKind {
 public:
  __device__ __forceinline__ SquaresOfKind(const PrepareHeads& a, int kind, int row, int tile)
      : kind_(a, kind),
        tile_(tile - kind_.first_tile),
        over_(a.words + kind * (kMostRows / 16) + row / 16),
        squares_(a.words + 2 * (kMostRows / 16) + kind * (kMostTiles * kMostRows) + row) {
    there_ = tile_ >= 0 && tile_ < kind_.num_tiles;
    if (there_) tag_ = static_cast<uint32_t>(read_tagged(over_)) + 1;
  }
  __device__ __forceinline__ bool there() const { return there_; }
  __device__ __forceinline__ bool has(int head) const { return kind_.has(head); }

  /// Whole warp; `own` is the sum over this tile, in all four lanes of a row.
  __device__ __forceinline__ void hand_on(const float (&own)[2]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (!there_ || lane % 4 != 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      store_tagged(squares_ + tile_ * kMostRows + lane / 4 + 8 * r, __float_as_uint(own[r]), tag_);
    }
  }
  /// Whole warp: 1 / rms of both rows of a lane.
  __device__ __forceinline__ void await(float (&scale)[2], float eps) const {
    if (!there_) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    uint64_t word[2][kMostTiles / 4];
    bool all_there = false;
    while (!all_there) {
      all_there = true;
      each(lane, [&](int r, int i, int tile) {
        word[r][i] = read_tagged(squares_ + tile * kMostRows + lane / 4 + 8 * r);
      });
      each(lane, [&](int r, int i, int) { all_there &= word[r][i] >> 32 == tag_; });
    }
    float sum[2] = {0, 0};
    each(lane,
         [&](int r, int i, int) { sum[r] += __uint_as_float(static_cast<uint32_t>(word[r][i])); });
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
      scale[r] = rsqrtf(sum[r] / static_cast<float>(kind_.count * kHead) + eps);
    }
    if (tile_ == 0 && lane == 0) store_tagged(over_, tag_, 0);  // all have read it
  }

 private:
  static constexpr int kMostTiles = FullHeadWords::kTiles, kMostRows = FullHeadWords::kRows;

  template <class Do>
  __device__ __forceinline__ void each(int lane, const Do& act) const {
#pragma unroll
    for (int i = 0; i < kMostTiles / 4; ++i) {
      const int tile = lane % 4 + 4 * i;
      if (tile >= kind_.num_tiles) continue;
      act(0, i, tile);
      act(1, i, tile);
    }
  }

  HeadKind kind_;
  int tile_;
  bool there_;
  uint64_t *over_, *squares_;
  uint32_t tag_ = 0;
};

/// Sums of a tile, through norm, clip and turn to q or the caches. Segment s of 32 outputs is half s % 2 of the tile's head s / 2; a thread
/// has of each and each row the values 8 j + 2 q and the next.
struct FullHeadsOut {
  using Args = PrepareHeads;
  using TileT = FullHeadsTile;
  static constexpr int kRowBytes = TileT::kColumns * 2 + 16;  // a stride free of bank conflicts

  int row, head, z;
  SquaresOfKind queries, keys;
  int rope_row[2];
  int slot = 0;      // of row i in lane i < 16
  float weight = 1;  // of the column of this thread's number
  float2 cos[2][4], sin[2][4];

  __device__ __forceinline__ FullHeadsOut(const Dense&, const PrepareHeads& a,
                                          DenseTileShared<TileT>&, const DensePlace<TileT>& place)
      : row(warp_row(place)),
        head(TileT::first_head(place.column)),
        z(TileT::first_value(place.column)),
        queries(a, 0, row, place.column / TileT::kColumns),
        keys(a, 1, row, place.column / TileT::kColumns) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int r = 0; r < 2; ++r) rope_row[r] = a.rope_row[row + lane / 4 + 8 * r];
    if (lane < 16) slot = static_cast<int>(a.slot[row + lane]);
    if (threadIdx.x < TileT::kColumns) weight = weight_of(a, threadIdx.x);
  }
  /// The norm's weight of a column of the tile; of v none.
  __device__ __forceinline__ float weight_of(const PrepareHeads& a, int column) const {
    const int at = head + column / 64, value = column / 32 % 2 * 64 + z + column % 32;
    if (queries.has(at)) return a.q_norm[at * kHead + value];
    return keys.has(at) ? a.k_norm[(at - a.heads) * kHead + value] : 1.0f;
  }
  __device__ __forceinline__ void ask(const PrepareHeads& a) {
    const int first = z + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = int64_t{rope_row[r]} * (kHead / 2) + first;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        cos[r][j] = *reinterpret_cast<const float2*>(a.cos + at + 8 * j);
        sin[r][j] = *reinterpret_cast<const float2*>(a.sin + at + 8 * j);
      }
    }
  }
  __device__ __forceinline__ void store(float (&sum)[TileT::kColumns / 2], const PrepareHeads& a,
                                        DenseTileShared<TileT>& shared) const {
    if (threadIdx.x < TileT::kColumns) shared.weight[threadIdx.x] = weight;
    hand_on(sum);
    fixed_barrier<1, TileT::kConsumers * 128>();
#pragma unroll
    for (int i = 0; i < TileT::kHeads; ++i) {
      if (!queries.has(head + i) && !keys.has(head + i)) continue;
      turn(sum, i, 0, shared);
      turn(sum, i, 1, shared);
    }
    float q_scale[2] = {1, 1}, k_scale[2] = {1, 1};
    queries.await(q_scale, a.eps);
    keys.await(k_scale, a.eps);
#pragma unroll
    for (int i = 0; i < TileT::kHeads; ++i) {
      const bool is_q = queries.has(head + i);
      if (!is_q && !keys.has(head + i)) continue;
      const float scale[2] = {is_q ? q_scale[0] : k_scale[0], is_q ? q_scale[1] : k_scale[1]};
#pragma unroll
      for (int j = 0; j < 32; ++j) sum[32 * i + j] *= scale[j / 2 % 2];
    }
    store_rows(sum, a, shared);
  }

 private:
  __device__ __forceinline__ void hand_on(const float (&sum)[TileT::kColumns / 2]) const {
    float of_queries[2] = {0, 0}, of_keys[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < TileT::kHeads; ++i) {
      const bool is_q = queries.has(head + i), is_k = keys.has(head + i);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float* v = sum + 4 * (8 * i + j) + 2 * r;
          squares += v[0] * v[0] + v[1] * v[1];
        }
        squares += __shfl_xor_sync(kAllLanes, squares, 1);
        squares += __shfl_xor_sync(kAllLanes, squares, 2);
        if (is_q) of_queries[r] += squares;
        if (is_k) of_keys[r] += squares;
      }
    }
    queries.hand_on(of_queries);
    keys.hand_on(of_keys);
  }
  /// Head i of the tile in row r, by the norm's weights and the turn; the norm's scale is not known yet.
  __device__ __forceinline__ void turn(float (&sum)[TileT::kColumns / 2], int i, int r,
                                       const DenseTileShared<TileT>& shared) const {
    const float* from = shared.weight + i * 64 + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 w_low = *reinterpret_cast<const float2*>(from + 8 * j);
      const float2 w_high = *reinterpret_cast<const float2*>(from + 32 + 8 * j);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float& low = sum[4 * (8 * i + j) + 2 * r + n];
        float& high = sum[4 * (8 * i + 4 + j) + 2 * r + n];
        const float l = low * (n == 0 ? w_low.x : w_low.y);
        const float h = high * (n == 0 ? w_high.x : w_high.y);
        const float c = n == 0 ? cos[r][j].x : cos[r][j].y;
        const float s = n == 0 ? sin[r][j].x : sin[r][j].y;
        low = l * c - h * s;
        high = h * c + l * s;
      }
    }
  }
  /// One warp: its rows through shared memory, 16 bytes a lane.
  __device__ __forceinline__ void store_rows(const float (&sum)[TileT::kColumns / 2],
                                             const PrepareHeads& a,
                                             DenseTileShared<TileT>& shared) const {
    constexpr int kPieces = TileT::kColumns / 8;  // of a row
    static_assert(TileT::kRows * kRowBytes <= TileT::kStages * TileT::kStageBytes);
    uint8_t* rows = shared.stage[0] + static_cast<int>(threadIdx.x) / kWarp * (16 * kRowBytes);
    const int lane = static_cast<int>(threadIdx.x) % kWarp, block = slot / a.block_tokens;
    const int64_t cache_row =  // in a cache with one head
        int64_t{block} * a.kv_heads * a.block_tokens + slot % a.block_tokens;
    store_warp_rows<TileT>(sum, shared_address(rows), kRowBytes);
    __syncwarp();
#pragma unroll 4
    for (int i = lane; i < 16 * kPieces; i += kWarp) {
      const int at = i / kPieces, piece = i % kPieces, own = head + piece / 8;
      const int64_t in_cache = __shfl_sync(kAllLanes, cache_row, at);
      bf16* to = target(a, own, row + at, in_cache) + piece / 4 % 2 * 64 + z + piece % 4 * 8;
      *reinterpret_cast<uint4*>(to) =
          *reinterpret_cast<const uint4*>(rows + at * kRowBytes + piece * 16);
    }
  }
  __device__ __forceinline__ bf16* target(const PrepareHeads& a, int own, int64_t t,
                                          int64_t in_cache) const {
    if (queries.has(own)) return static_cast<bf16*>(a.q) + (t * a.heads + own) * kHead;
    const bool is_k = keys.has(own);
    const int g = own - a.heads - (is_k ? 0 : a.kv_heads);
    return static_cast<bf16*>(is_k ? a.k_cache : a.v_cache) +
           (in_cache + int64_t{g} * a.block_tokens) * kHead;
  }
};

}  // namespace switchyard::cuda
