// SPDX-License-Identifier: Apache-2.0
// Decode attention of one warp over one tile of 16 positions, for 8 query heads that share the keys:
//
//   S^T [16 keys, 8 heads] = K Q^T      K by ldmatrix as the M operand, so that no row of the mma is padding
//   P = exp2(S - highest)               the highest score is followed only when it has grown by 2^8
//   O^T [Z, 8 heads] += V^T P^T         V by transposing ldmatrix; P^T transposed in registers
// A tile in shared memory is K then V, each [Z / 64][16 positions][64], 16-byte chunk c of a row at c ^ (row % 8): what
// bulk tensor copies make of it, and no two rows of a matrix meet in a bank.
#pragma once
#include "kernels/cuda/attention_decode_items.cuh"

namespace switchyard::cuda {

template <int kZ>
inline constexpr int kTileBytes = kCacheTile* kZ * 2;  ///< of K, and of V
inline constexpr int kHalfBytes = kCacheTile * 128;    ///< of 64 values of z

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

template <int kZ>
__device__ __forceinline__ void score_tile(const Queries<kZ>& q, uint32_t keys, float (&s)[4]) {
  const int lane = threadIdx.x % kWarp;
  // Matrices: rows 0-7 and 8-15 of eight z, then of the next eight.
  const uint32_t at = keys + lane % 16 * 128 + ((lane / 16 ^ lane % 8) << 4);
  float odd[4] = {};
#pragma unroll
  for (int t = 0; t < kZ / 16; ++t) {
    uint32_t k[4];
    load_matrices(k, (at ^ (t % 4 << 5)) + t / 4 * kHalfBytes);
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

/// Scores to weights. Keys outside [low, high) get none; at least one is inside.
template <int kZ>
__device__ __forceinline__ void weigh_tile(float scale, int low, int high, float (&s)[4],
                                           DecodeState<kZ>& state) {
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
  state.total[0] += s[0] + s[2];
  state.total[1] += s[1] + s[3];
}

template <int kZ>
__device__ __forceinline__ void accumulate_tile(const float (&p)[4], uint32_t values,
                                                DecodeState<kZ>& state) {
  const int lane = threadIdx.x % kWarp;
  // Matrices: z 0-7 and 8-15 of keys 0-7, then of keys 8-15.
  const uint32_t at = values + (lane % 8 + lane / 16 * 8) * 128 + ((lane / 8 % 2 ^ lane % 8) << 4);
  const uint32_t low = transpose_matrix(pack_bf16(p[0], p[1]));
  const uint32_t high = transpose_matrix(pack_bf16(p[2], p[3]));
#pragma unroll
  for (int t = 0; t < kZ / 16; ++t) {
    uint32_t v[4];
    load_matrices_transposed(v, (at ^ (t % 4 << 5)) + t / 4 * kHalfBytes);
    mma_bf16(state.o[t], v[0], v[1], v[2], v[3], low, high);
  }
}

/// Zeroes the values of rows outside [low, high): 0 * garbage could be NaN.
template <int kZ>
__device__ __forceinline__ void clear_rows(uint32_t values, int low, int high) {
  const int lane = threadIdx.x % kWarp;
  for (int i = lane; i < kCacheTile * kZ / 8; i += kWarp) {
    const int row = i / 8 % kCacheTile;
    if (row >= low && row < high) continue;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + i * 16), "r"(0)
                 : "memory");
  }
  __syncwarp();
}

/// One tile whose values are clear outside [low, high).
template <int kZ>
__device__ __forceinline__ void attend_tile(const Queries<kZ>& q, uint32_t tile, float scale,
                                            int low, int high, DecodeState<kZ>& state) {
  float s[4] = {};
  score_tile<kZ>(q, tile, s);
  weigh_tile<kZ>(scale, low, high, s, state);
  accumulate_tile<kZ>(s, tile + kTileBytes<kZ>, state);
}

}  // namespace switchyard::cuda
