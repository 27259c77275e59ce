// SPDX-License-Identifier: Apache-2.0
// A tile that is a head of q, k or v (dense_tile_sm90a.cuh): rounded and on through norm, clip and turn to q or a cache.
// Source: Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#pragma once
#include "kernels/cuda/dense_tile_out_sm90a.cuh"

namespace switchyard::cuda {

inline constexpr int kHead = 128;

// Cosines and sines of this lane's pairs in both of its rows; none for v.
struct RowTurns {
  float2 cos[2][8], sin[2][8];
  __device__ __forceinline__ void ask(const PrepareHeads& a, const int (&rope_row)[2]) {
    const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = int64_t{rope_row[r]} * (kHead / 2) + first;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        cos[r][j] = *reinterpret_cast<const float2*>(a.cos + at + 8 * j);
        sin[r][j] = *reinterpret_cast<const float2*>(a.sin + at + 8 * j);
      }
    }
  }
};

__device__ __forceinline__ float clipped(float v, float clip) {
  return clip > 0 ? fminf(fmaxf(v, -clip), clip) : v;
}

// Norm, clip and turn of row r. Of v only the clip.
__device__ __forceinline__ void finish_row(float (&sum)[kHead / 2], int r, const PrepareHeads& a,
                                           const float* weight, const RowTurns& turns, bool is_v) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  const bool normed = !is_v && a.norm != QkNormKind::none;
  float scale = 1;
  if (normed) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float* v = sum + 4 * j + 2 * r;
      squares += v[0] * v[0] + v[1] * v[1];
    }
    squares += __shfl_xor_sync(kAllLanes, squares, 1);
    squares += __shfl_xor_sync(kAllLanes, squares, 2);
    scale = rsqrtf(squares / kHead + a.eps);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    float2 wl = make_float2(1, 1), wh = wl;
    if (normed) {
      wl = *reinterpret_cast<const float2*>(weight + first + 8 * j);
      wh = *reinterpret_cast<const float2*>(weight + first + 8 * j + kHead / 2);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& low = sum[4 * j + 2 * r + i];
      float& high = sum[4 * (j + 8) + 2 * r + i];
      const float l = clipped(low * scale * (i == 0 ? wl.x : wl.y), a.clip);
      const float h = clipped(high * scale * (i == 0 ? wh.x : wh.y), a.clip);
      const float c = i == 0 ? turns.cos[r][j].x : turns.cos[r][j].y;
      const float s = i == 0 ? turns.sin[r][j].x : turns.sin[r][j].y;
      low = is_v ? l : l * c - h * s;
      high = is_v ? h : h * c + l * s;
    }
  }
}

__device__ __forceinline__ bf16* head_target(const PrepareHeads& a, int head, int t) {
  if (head < a.heads) return static_cast<bf16*>(a.q) + (int64_t{t} * a.heads + head) * kHead;
  const int64_t slot = a.slot[t], block = slot / a.block_tokens, offset = slot % a.block_tokens;
  const bool is_v = head >= a.heads + a.kv_heads;
  const int g = head - a.heads - (is_v ? a.kv_heads : 0);
  return static_cast<bf16*>(is_v ? a.v_cache : a.k_cache) +
         ((block * a.kv_heads + g) * a.block_tokens + offset) * kHead;
}

// Sums of a head, through norm, clip and turn to q or a cache.
template <class TileT>
struct HeadsOut {
  using Args = PrepareHeads;
  static_assert(TileT::kColumns == kHead);
  bool is_v;
  int rope_row[2];
  RowTurns turns;
  bf16* to = nullptr;
  __device__ __forceinline__ HeadsOut(const Dense&, const PrepareHeads& a,
                                      DenseTileShared<TileT>& shared,
                                      const DensePlace<TileT>& place) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, first = warp_row(place);
    const int head = place.column / kHead;
    is_v = head >= a.heads + a.kv_heads;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = min(first + lane / 4 + 8 * r, static_cast<int>(a.tokens) - 1);
      rope_row[r] = is_v ? 0 : a.rope_row[t];
    }
    if (lane < 16 && first + lane < a.tokens) to = head_target(a, head, first + lane);
    if (is_v || a.norm == QkNormKind::none || threadIdx.x >= kHead) return;
    shared.weight[threadIdx.x] = (head < a.heads ? a.q_norm : a.k_norm)[threadIdx.x];
  }
  __device__ __forceinline__ void ask(const PrepareHeads& a) { turns.ask(a, rope_row); }
  __device__ __forceinline__ void store(float (&sum)[kHead / 2], const PrepareHeads& a,
                                        DenseTileShared<TileT>& shared) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) finish_row(sum, r, a, shared.weight, turns, is_v);
    store_rows<TileT>(sum, shared, to);
  }
};

}  // namespace switchyard::cuda
