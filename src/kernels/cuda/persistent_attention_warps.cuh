// SPDX-License-Identifier: Apache-2.0
// The warps of the persistent step's attention (persistent_attention.cuh).
//
//   key warps      eight; a warp has a tile of 16 positions:  S^T [16 keys, 8 heads] = K Q^T, to shared memory
//   value warps    eight; a warp has 32 of Z and its share of the eight tiles:  O^T [32, 8 heads] += V^T P^T, V transposed in registers
// The token's own key and value take the places of what memory held there.
#pragma once
#include "kernels/cuda/persistent_heads.cuh"

namespace switchyard::cuda::persistent {

/// What a warp holds of a chunk.
template <int kZ>
using Held = uint4[kZ / 16];
/// A tile.
template <int kZ>
class KeyWarp {
  static constexpr int kParts = kZ / 32;

 public:
  __device__ KeyWarp(const PersistentStep& step, Block& block, int lane, int warp)
      : step_(step), block_(block), lane_(lane), tile_(warp) {}

  __device__ __forceinline__ void load(const void* keys, int chunk, const int* tile_row,
                                       Held<kZ>& held) const {
    if (chunk + tile_ * kCacheTile >= block_.span.end) return;
    const bf16* from =
        static_cast<const bf16*>(keys) + int64_t{tile_row[tile_] + lane_ / 4} * kZ + lane_ % 4 * 8;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      held[i * 2] = load_stream(from + i * 32);
      held[i * 2 + 1] = load_stream(from + 8 * kZ + i * 32);
    }
  }

  /// Scores in powers of two, and the highest of the tile.
  __device__ __forceinline__ void score(int chunk, Held<kZ>& held, const char* queries,
                                        float* scores) const {
    const int first = chunk + tile_ * kCacheTile;
    float s[2][4] = {};
    if (first < block_.span.end) {
      insert(first, held, queries);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const uint4 query = *reinterpret_cast<const uint4*>(queries + lane_ / 4 * kQueryBytes<kZ> +
                                                            i * 64 + lane_ % 4 * 16);
        const uint4 &low = held[i * 2], &high = held[i * 2 + 1];
        mma_bf16(s[0], low.x, high.x, low.y, high.y, query.x, query.y);
        mma_bf16(s[1], low.z, high.z, low.w, high.w, query.z, query.w);
      }
    }
    leave(block_.span.end - first, s, scores);
  }

 private:
  __device__ __forceinline__ void insert(int first, Held<kZ>& held, const char* queries) const {
    if (!block_.span.has_token()) return;
    const auto* now = reinterpret_cast<const uint4*>(queries + kMaxShared * kQueryBytes<kZ>);
    const int at = block_.span.position - first - lane_ / 4;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (at == 0) held[i * 2] = now[i * 4 + lane_ % 4];
      if (at == 8) held[i * 2 + 1] = now[i * 4 + lane_ % 4];
    }
  }

  __device__ __forceinline__ void leave(int left, const float (&s)[2][4], float* scores) const {
    const int g = lane_ / 4, q = lane_ % 4;
    const float scale = step_.attention_scale * kLog2e;
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = g + i / 2 * 8;
      const float value = key < left ? (s[0][i] + s[1][i]) * scale : -INFINITY;
      top[i % 2] = fmaxf(top[i % 2], value);
      scores[(q * 2 + i % 2) * kScoreStride + tile_ * kCacheTile + key] = value;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(kAllLanes, top[i], offset));
      }
      if (g == 0) block_.tile_top[q * 2 + i][tile_] = top[i];
    }
  }

  const PersistentStep& step_;
  Block& block_;
  int lane_, tile_;
};

/// 32 of Z and its share of the tiles.
template <int kZ>
class ValueWarp {
 public:
  static constexpr int kSlices = kZ / 32, kSplits = kSideWarps / kSlices;
  static constexpr int kTiles = kChunkTiles / kSplits;

  __device__ ValueWarp(Block& block, int lane, int warp)
      : block_(block), lane_(lane), slice_(warp % kSlices), split_(warp / kSlices) {}

  __device__ __forceinline__ void load(const void* values, int chunk, const int* tile_row,
                                       Held<kZ>& held) const {
    const int z = slice_ * 32 + lane_ % 4 * 8;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int left = block_.span.end - chunk - tile(t) * kCacheTile - lane_ / 4;
      held[t * 2] = held[t * 2 + 1] = make_uint4(0, 0, 0, 0);
      const bf16* from =
          static_cast<const bf16*>(values) + int64_t{tile_row[tile(t)] + lane_ / 4} * kZ + z;
      if (left > 0) held[t * 2] = load_stream(from);
      if (left > 8) held[t * 2 + 1] = load_stream(from + 8 * kZ);
    }
  }

  __device__ __forceinline__ void add(int chunk, Held<kZ>& held, const float* scores) {
    raise();
    const int g = lane_ / 4, q = lane_ % 4;
    const uint4 now = reinterpret_cast<const uint4*>(block_.value_now)[slice_ * 4 + q];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int first = chunk + tile(t) * kCacheTile;
      if (first >= block_.span.end) break;
      uint4 &v = held[t * 2], &w = held[t * 2 + 1];
      const int at = block_.span.has_token() ? block_.span.position - first - g : -1;
      if (at == 0) v = now;
      if (at == 8) w = now;
      const float* from = scores + g * kScoreStride + tile(t) * kCacheTile + q * 2;
      const float2 low = *reinterpret_cast<const float2*>(from);
      const float2 high = *reinterpret_cast<const float2*>(from + 8);
      const float p[4] = {exp2_fast(low.x - top_), exp2_fast(low.y - top_),
                          exp2_fast(high.x - top_), exp2_fast(high.y - top_)};
      total_ += (p[0] + p[1]) + (p[2] + p[3]);
      const uint32_t b0 = pack_bf16(p[0], p[1]), b1 = pack_bf16(p[2], p[3]);
      mma_bf16(sum_[0], transpose_matrix(v.x), transpose_matrix(v.y), transpose_matrix(w.x),
               transpose_matrix(w.y), b0, b1);
      mma_bf16(sum_[1], transpose_matrix(v.z), transpose_matrix(v.w), transpose_matrix(w.z),
               transpose_matrix(w.w), b0, b1);
    }
  }

  __device__ __forceinline__ void store_shares(float* outputs) {
    const int g = lane_ / 4, q = lane_ % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = q * 2 + i % 2, z = slice_ * 32 + g / 2 * 8 + (m * 2 + i / 2) * 2 + g % 2;
        outputs[(split_ * kMaxShared + head) * kZ + z] = sum_[m][i];
      }
    }
    total_ += __shfl_xor_sync(kAllLanes, total_, 1);
    total_ += __shfl_xor_sync(kAllLanes, total_, 2);
    if (slice_ == 0 && q == 0) block_.split_total[split_][g] = total_;
    if (slice_ == 0 && split_ == 0 && q == 0) block_.top[g] = top_;
  }

 private:
  __device__ __forceinline__ int tile(int t) const { return t * kSplits + split_; }

  // Follows the highest score of head g, and scales what is there to it.
  __device__ __forceinline__ void raise() {
    const int g = lane_ / 4, q = lane_ % 4;
    float top = top_;
    const auto* tops = reinterpret_cast<const float4*>(block_.tile_top[g]);
#pragma unroll
    for (int i = 0; i < kChunkTiles / 4; ++i) {
      top = fmaxf(top, fmaxf(fmaxf(tops[i].x, tops[i].y), fmaxf(tops[i].z, tops[i].w)));
    }
    const float shrink = exp2_fast(top_ - top);
    top_ = top;
    total_ *= shrink;
    const float even = __shfl_sync(kAllLanes, shrink, q * 8);
    const float odd = __shfl_sync(kAllLanes, shrink, q * 8 + 4);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum_[m][i] *= i % 2 == 0 ? even : odd;
    }
  }

  Block& block_;
  int lane_, slice_, split_;
  float sum_[2][4] = {};
  float top_ = -INFINITY, total_ = 0;
};

}  // namespace switchyard::cuda::persistent
