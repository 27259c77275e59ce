// SPDX-License-Identifier: Apache-2.0
// Decode attention of one warp over one tile of 16 positions, for 8 query heads that share the keys:
//
//   S^T [16 keys, 8 heads] = K Q^T      K by ldmatrix as the M operand, so that no row of the mma is padding
//   P = exp2(S - highest)               the highest score is followed only when it has grown by 2^8
//   O^T [Z, 8 heads] += V^T P^T         V by transposing ldmatrix; P^T transposed in registers
// Keys and values of a tile are in shared memory, positions `kPitch` bytes apart and 64 values of z `kHalf` bytes; 16-byte chunk c
// of the i-th 128 bytes stands at c ^ (i % 8), so that rows of a matrix meet in no bank or, with two halves in a row, two by two.
#pragma once
#include "kernels/cuda/attention_decode_items.cuh"

namespace switchyard::cuda {

template <int kZ>
inline constexpr int kTileBytes = kCacheTile* kZ * 2;  ///< of K, and of V

/// Halves one behind the other, each [16 positions][64].
struct HalvesApart {
  static constexpr int kPitch = 128, kHalf = kCacheTile * 128;
};
/// [16 positions][Z], as in the cache.
template <int kZ>
struct HalvesTogether {
  static constexpr int kPitch = kZ * 2, kHalf = 128;
};

/// Where a lane's chunk `chunk` of the first 16 z of a position stands.
template <class Layout>
__device__ __forceinline__ uint32_t chunk_at(uint32_t tile, int position, int chunk) {
  const int row = position * (Layout::kPitch / 128);
  return tile + position * Layout::kPitch + ((chunk ^ row % 8) << 4);
}
/// The same for z from 16 * t on; `t` is known when compiling.
template <class Layout>
__device__ __forceinline__ uint32_t chunk_at(uint32_t first, int t) {
  const int half = t / 4, odd = Layout::kHalf == 128 ? half << 4 : 0;
  return (first ^ (t % 4 << 5 | odd)) + half * Layout::kHalf;
}

/// The softmax of 8 heads over some keys. Lane 4 g + q holds heads 2 q and 2 q + 1 (elements i % 2), and of z, for each t,
/// 16 t + g (elements 0 and 1) and 16 t + g + 8.
template <int kZ>
struct DecodeState {
  float o[kZ / 16][4] = {};
  float highest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  ///< of this lane's keys
};

/// Queries as the N operand: head g, values 16 t + 2 q and the next, and the same + 8.
template <int kZ>
using Queries = uint32_t[kZ / 16][2];

/// From rows of `stride` bytes; heads that do not exist are zero, so that nothing depends on them.
template <int kZ>
__device__ __forceinline__ void load_queries(const void* rows, int stride, int heads,
                                             Queries<kZ>& q) {
  const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
  const char* from =
      static_cast<const char*>(rows) + (group < heads ? group : 0) * stride + quad * 4;
#pragma unroll
  for (int t = 0; t < kZ / 16; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto pair = *reinterpret_cast<const uint32_t*>(from + t * 32 + i * 16);
      q[t][i] = group < heads ? pair : 0;
    }
  }
}

template <int kZ, class Layout>
__device__ __forceinline__ void score_tile(const Queries<kZ>& q, uint32_t keys, float (&s)[4]) {
  const int lane = threadIdx.x % kWarp;
  // Matrices: rows 0-7 and 8-15 of eight z, then of the next eight.
  const uint32_t at = chunk_at<Layout>(keys, lane % 16, lane / 16);
  float odd[4] = {};
#pragma unroll
  for (int t = 0; t < kZ / 16; ++t) {
    uint32_t k[4];
    load_matrices(k, chunk_at<Layout>(at, t));
    mma_bf16(t % 2 == 0 ? s : odd, k[0], k[1], k[2], k[3], q[t][0], q[t][1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] += odd[i];
}

/// Follows the highest scores, and scales what is there to them.
template <int kZ>
__device__ __forceinline__ void raise(float (&top)[2], DecodeState<kZ>& state) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    top[i] = fmaxf(top[i], state.highest[i]);
#pragma unroll
    for (int offset = 4; offset < kWarp; offset <<= 1) {
      top[i] = fmaxf(top[i], __shfl_xor_sync(kAllLanes, top[i], offset));
    }
    const float shrink = exp2_fast(state.highest[i] - top[i]);
    state.highest[i] = top[i];
    state.total[i] *= shrink;
#pragma unroll
    for (int t = 0; t < kZ / 16; ++t) {
      state.o[t][i] *= shrink;
      state.o[t][i + 2] *= shrink;
    }
  }
}

/// Scores to weights, in bf16: p[0] of the first 8 keys. Keys outside [low, high) get none; at least one is inside. What is
/// summed are the rounded weights, so that rounding them changes how they share 1 but not that they do.
template <int kZ>
__device__ __forceinline__ void weigh_tile(float scale, int low, int high, float (&s)[4],
                                           uint32_t (&p)[2], DecodeState<kZ>& state) {
  constexpr float kSlack = 8;  // weights stay below 2^8
  const int group = threadIdx.x % kWarp / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = group + i / 2 * 8;
    s[i] = key >= low && key < high ? s[i] * scale : -INFINITY;
  }
  float top[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};
  const bool grown = top[0] > state.highest[0] + kSlack || top[1] > state.highest[1] + kSlack;
  if (__any_sync(kAllLanes, grown)) raise<kZ>(top, state);
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = exp2_fast(s[i] - state.highest[i % 2]);
#pragma unroll
  for (int i = 0; i < 2; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
  state.total[0] += low_bf16(p[0]) + low_bf16(p[1]);
  state.total[1] += high_bf16(p[0]) + high_bf16(p[1]);
}

template <int kZ, class Layout>
__device__ __forceinline__ void accumulate_tile(const uint32_t (&p)[2], uint32_t values,
                                                float (&o)[kZ / 16][4]) {
  const int lane = threadIdx.x % kWarp;
  // Matrices: z 0-7 and 8-15 of keys 0-7, then of keys 8-15.
  const uint32_t at = chunk_at<Layout>(values, lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t low = transpose_matrix(p[0]), high = transpose_matrix(p[1]);
#pragma unroll
  for (int t = 0; t < kZ / 16; ++t) {
    uint32_t v[4];
    load_matrices_transposed(v, chunk_at<Layout>(at, t));
    mma_bf16(o[t], v[0], v[1], v[2], v[3], low, high);
  }
}

/// Zeroes the values of rows outside [low, high): 0 * garbage could be NaN.
template <int kZ, class Layout>
__device__ __forceinline__ void clear_rows(uint32_t values, int low, int high) {
  const int lane = threadIdx.x % kWarp;
  for (int i = lane; i < kCacheTile * kZ / 8; i += kWarp) {
    const int row = i / 8 % kCacheTile, half = i / (8 * kCacheTile);
    if (row >= low && row < high) continue;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(
                     values + row * Layout::kPitch + half * Layout::kHalf + i % 8 * 16),
                 "r"(0)
                 : "memory");
  }
  __syncwarp();
}

/// One tile whose values are clear outside [low, high).
template <int kZ, class Layout>
__device__ __forceinline__ void attend_tile(const Queries<kZ>& q, uint32_t keys, uint32_t values,
                                            float scale, int low, int high,
                                            DecodeState<kZ>& state) {
  float s[4] = {};
  uint32_t p[2];
  score_tile<kZ, Layout>(q, keys, s);
  weigh_tile<kZ>(scale, low, high, s, p, state);
  accumulate_tile<kZ, Layout>(p, values, state.o);
}

}  // namespace switchyard::cuda
