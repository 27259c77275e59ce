// SPDX-License-Identifier: Apache-2.0
// Decode attention of four warps over units of 64 positions, for 8 query heads that share the keys:
//
//   S^T [16 keys, 8 heads] = K Q^T      each warp a tile of its own
//   P = exp2(S - highest)               through shared memory to all four; the highest score is theirs together
//   O^T [Z / 4, 8 heads] += V^T P^T     each warp a quarter of z, all 64 keys
// So the four have one state between them, and what is left to merge at the end of a span is a quarter of four states.
#pragma once
#include "kernels/cuda/attention_decode_merge.cuh"

namespace switchyard::cuda {

/// Lane 4 g + q of warp w holds heads 2 q and 2 q + 1 (elements i % 2), and of z, for each t, 16 (w Z / 64 + t) + g (elements 0
/// and 1) and 8 more.
template <int kZ>
struct UnitState {
  float o[kZ / 64][4] = {};
  float highest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  ///< of this lane's keys
};

/// What four warps tell each other, in turns: they read the weights of a unit while the first of them write the next one's.
struct UnitExchange {
  static constexpr int kPitch = kUnit * 2 + 16;  // padded against bank conflicts
  alignas(16) unsigned char weights[2][kTileHeads][kPitch];
  float highest[kUnitTiles][kTileHeads];
};

/// Scales the scores of a tile, where keys outside [low, high) get none; whether any has outgrown the highest. Spelled out here and
/// below, so that bits are the same wherever these are used.
__device__ __forceinline__ bool hide_keys(float scale, int low, int high, const float (&highest)[2],
                                          float (&s)[4]) {
  constexpr float kSlack = 8;  // weights stay below 2^8
  const int group = threadIdx.x % kWarp / 4;
  bool grown = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = group + i / 2 * 8;
    s[i] = key >= low && key < high ? __fmul_rn(s[i], scale) : -INFINITY;
    grown |= s[i] > highest[i % 2] + kSlack;
  }
  return grown;
}

/// Scores of a tile to weights, in bf16: p[0] of the first 8 keys.
__device__ __forceinline__ void weights_of(const float (&s)[4], const float (&highest)[2],
                                           uint32_t (&p)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    p[i] = pack_bf16(exp2_fast(__fadd_rn(s[2 * i], -highest[0])),
                     exp2_fast(__fadd_rn(s[2 * i + 1], -highest[1])));
  }
}
/// What is summed are the rounded weights, so that rounding them changes how they share 1 but not that they do.
__device__ __forceinline__ void add_weights(const uint32_t (&p)[2], float (&total)[2]) {
  total[0] = __fadd_rn(total[0], __fadd_rn(low_bf16(p[0]), low_bf16(p[1])));
  total[1] = __fadd_rn(total[1], __fadd_rn(high_bf16(p[0]), high_bf16(p[1])));
}
/// A sum over the lanes that hold other keys of the same heads.
__device__ __forceinline__ float sum_of_keys(float value) {
#pragma unroll
  for (int offset = 4; offset < kWarp; offset <<= 1) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

/// The warp's weights to `to`.
__device__ __forceinline__ void share_weights(const uint32_t (&p)[2], uint32_t to) {
  const int lane = threadIdx.x % kWarp, tile = threadIdx.x / kWarp % kUnitTiles;
  const uint32_t at = to + lane / 4 * UnitExchange::kPitch + tile * (kCacheTile * 2) + lane % 4 * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + i * 16), "r"(transpose_matrix(p[i]))
                 : "memory");
  }
}

/// All four warps: follows the highest scores, and scales what is there to them.
template <int kZ>
__device__ __forceinline__ void raise_unit(const float (&s)[4], int barrier, UnitExchange& exchange,
                                           UnitState<kZ>& state) {
  const int lane = threadIdx.x % kWarp, tile = threadIdx.x / kWarp % kUnitTiles;
  float top[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int offset = 4; offset < kWarp; offset <<= 1) {
      top[i] = fmaxf(top[i], __shfl_xor_sync(kAllLanes, top[i], offset));
    }
    if (lane < 4) exchange.highest[tile][lane * 2 + i] = top[i];
  }
  named_barrier(barrier, kUnitTiles * kWarp);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    top[i] = state.highest[i];
#pragma unroll
    for (int t = 0; t < kUnitTiles; ++t) {
      top[i] = fmaxf(top[i], exchange.highest[t][lane % 4 * 2 + i]);
    }
    const float shrink = exp2_fast(state.highest[i] - top[i]);
    state.highest[i] = top[i];
    state.total[i] = __fmul_rn(state.total[i], shrink);
#pragma unroll
    for (int t = 0; t < kZ / 64; ++t) {
      state.o[t][i] *= shrink;
      state.o[t][i + 2] *= shrink;
    }
  }
}

/// All four warps: scores of the warp's tile to weights of all, at `to`. Keys outside [low, high) of the tile get none.
template <int kZ>
__device__ __forceinline__ void weigh_unit(float scale, int low, int high, int barrier, uint32_t to,
                                           float (&s)[4], UnitExchange& exchange,
                                           UnitState<kZ>& state) {
  const bool grown = hide_keys(scale, low, high, state.highest, s);
  uint32_t p[2];
  weights_of(s, state.highest, p);
  share_weights(p, to);
  if (named_barrier_any(barrier, kUnitTiles * kWarp, grown)) {
    raise_unit<kZ>(s, barrier, exchange, state);
    weights_of(s, state.highest, p);
    share_weights(p, to);
    named_barrier(barrier, kUnitTiles * kWarp);
  }
  add_weights(p, state.total);
}

/// Where a lane's chunk of the warp's first 16 z of V stands, for the keys of the first tile; see chunk_at.
template <int kZ, class Layout>
__device__ __forceinline__ uint32_t own_values(uint32_t values) {
  constexpr int kLines = Layout::kPitch / 128;  // of a position, one behind the other
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % kUnitTiles;
  const int position = lane % 8 + lane / 16 * 8, chunk = warp * (kZ / 32) + lane / 8 % 2;
  const int half = chunk / 8, line = position * kLines + (kLines > 1 ? half : 0);
  return values + position * Layout::kPitch + half * Layout::kHalf + ((chunk ^ line) % 8 << 4);
}

/// Bits of the tiles of which [low, high) of a unit has some positions.
__device__ __forceinline__ unsigned seen_tiles(int low, int high) {
  const unsigned from = 0xfu << max(low, 0) / kCacheTile;
  return from & ((1u << (min(high, kUnit) + kCacheTile - 1) / kCacheTile) - 1);
}

/// Tiles that are not in `tiles` may hold anything.
template <int kZ, class Layout>
__device__ __forceinline__ void accumulate_unit(uint32_t weights, uint32_t values, unsigned tiles,
                                                UnitState<kZ>& state) {
  const int lane = threadIdx.x % kWarp;
  const uint32_t from = weights + lane % 8 * UnitExchange::kPitch + lane / 8 * 16;
  const uint32_t at = own_values<kZ, Layout>(values);
  uint32_t p[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) load_matrices(p[i], from + i * 64);
#pragma unroll
  for (int j = 0; j < kUnitTiles; ++j) {
    if ((tiles >> j & 1) == 0) continue;
#pragma unroll
    for (int t = 0; t < kZ / 64; ++t) {
      uint32_t v[4];
      load_matrices_transposed(v, (at ^ t << 5) + j * kTileBytes<kZ>);
      mma_bf16(state.o[t], v[0], v[1], v[2], v[3], p[j / 2][j % 2 * 2], p[j / 2][j % 2 * 2 + 1]);
    }
  }
}

/// Zeroes the warp's z of the values of rows outside [low, high) of a unit: 0 * garbage could be NaN.
template <int kZ>
__device__ __forceinline__ void clear_own_values(uint32_t values, int low, int high) {
  constexpr int kLines = kZ / 64, kChunks = kZ / 32;  // of a position; of it the warp's
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % kUnitTiles;
  for (int i = lane; i < kUnit * kChunks; i += kWarp) {
    const int position = i / kChunks, chunk = warp * kChunks + i % kChunks;
    if (position >= low && position < high) continue;
    const int line = position * kLines + chunk / 8;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + line * 128 +
                                                                  ((chunk ^ line) % 8 << 4)),
                 "r"(0)
                 : "memory");
  }
  __syncwarp();
}

template <int kZ, int kGroups>
__device__ __forceinline__ void share_unit_state(const UnitState<kZ>& state, int heads,
                                                 SharedStates<kZ, kGroups, kUnitTiles>& shared) {
  const int lane = threadIdx.x % kWarp, group = threadIdx.x / kWarp / kUnitTiles;
  const int warp = threadIdx.x / kWarp % kUnitTiles, row = lane / 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = lane % 4 * 2 + i;
    const float total = sum_of_keys(state.total[i]);
    if (head >= heads) continue;
    if (row == 0) {
      if (warp == 0) shared.highest[group][head] = state.highest[i];
      shared.total[group][warp][head] = total;
    }
#pragma unroll
    for (int t = 0; t < kZ / 64; ++t) {
      float* to = &shared.o[group][head][(warp * (kZ / 64) + t) * 16 + row];
      to[0] = state.o[t][i];
      to[8] = state.o[t][i + 2];
    }
  }
}

/// All four warps: the state of all keys to the result.
template <int kZ>
__device__ __forceinline__ void write_unit(const Attend& a, const DecodeItem& item, int barrier,
                                           UnitExchange& exchange, const UnitState<kZ>& state) {
  const int lane = threadIdx.x % kWarp, head = lane / 4;
  const int warp = threadIdx.x / kWarp % kUnitTiles;
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float own = sum_of_keys(state.total[i]);
    if (lane < 4) exchange.highest[warp][lane * 2 + i] = own;
  }
  named_barrier(barrier, kUnitTiles * kWarp);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float all = 0;
#pragma unroll
    for (int j = 0; j < kUnitTiles; ++j) all += exchange.highest[j][lane % 4 * 2 + i];
    inverse[i] = 1.0f / all;
  }
  auto* to = static_cast<bf16*>(a.out) + (first_head(a, item) + head) * kZ + warp * (kZ / 4) +
             lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kZ / 32; ++i) {
    const float* o = &state.o[i / 2][i % 2 * 2];
    const uint32_t pair = transpose_matrix(pack_bf16(o[0] * inverse[0], o[1] * inverse[1]));
    if (head < item.heads) *reinterpret_cast<uint32_t*>(to + i * 8) = pair;
  }
}

}  // namespace switchyard::cuda
