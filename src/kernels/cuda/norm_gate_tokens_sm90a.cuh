// SPDX-License-Identifier: Apache-2.0
// What norm_gate_sm90a.cu has in shared memory, and the tokens' part of it: a block's inputs of its cluster's tokens, weighed and in two
// parts of bf16 for the tensor cores, and in the end the normed rows.
//
//   warp     every 16th token; a lane has 4 inputs of each 128, so its norm weights serve all of them
//   factors  [high, low][kChunk / 64][40 tokens][64], swizzled. Of each 32 inputs the order is that in which lanes hold gate rows
//            (norm_gate_product_sm90a.cuh): input 8 q + 4 s + 2 h + i lies at 16 s + 8 h + 2 q + i
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm); Henry, Tang and Heinecke 2019, arXiv 1904.06376 (bf16 in parts).
#pragma once
#include "kernels/cuda/gate_entries.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda::gate_parts {

inline constexpr int kBlocks = 8;  ///< of a cluster
inline constexpr int kTokens = 40, kThreads = 512, kWarps = kThreads / kWarp;
inline constexpr int kOwnTokens = kTokens / kBlocks;                 ///< whose sums a block joins
inline constexpr int kWarpTokens = (kTokens + kWarps - 1) / kWarps;  ///< whose inputs a warp reads
inline constexpr int kChunk = 256, kSlice = 32;  ///< inputs: of a turn; blocks have multiples of
inline constexpr int kPanelInputs = 64;
inline constexpr int kPanelBytes = kTokens * kPanelInputs * 2;
inline constexpr int kMaxExperts = 256, kMaxPicks = kWarp, kMostClusters = 16;
inline constexpr int kMostTokens = kMostClusters * kTokens;

/// kExperts: room, a multiple of 64. kShares: of a chunk's inputs, whose sums are formed side by side.
template <int kExperts, int kShares>
struct SharedOf {
  static constexpr int kRoom = kExperts;
  static constexpr int kStride = kExperts + 4;  ///< of a token's sums, free of bank conflicts
  static constexpr int kPartBytes = kOwnTokens * kStride * 4;
  alignas(1024) uint8_t high[kChunk / kPanelInputs][kPanelBytes];
  uint8_t low[kChunk / kPanelInputs][kPanelBytes];
  alignas(16) float sum[kShares][kTokens * kStride];
  alignas(16) float parts[kBlocks][kOwnTokens * kStride];  ///< of each block for this one's tokens
  alignas(16) float squares[kTokens];
  alignas(16) float all_squares[kBlocks][kTokens];
  float logit[kOwnTokens][kExperts];
  // Of the first block of a cluster:
  uint32_t chosen[kExperts]
                 [2];   ///< bit t % 32 of word t / 32: token t of the cluster picked the expert
  int count[kExperts];  ///< picks of all tokens << 16 | of those before the cluster's
  uint8_t own_pick[kTokens * kMaxPicks];  ///< of the cluster
  int first_row[kExperts];                ///< of this cluster's picks
  int warp_rows[kWarps], warp_hits[kWarps];
  uint32_t launch;
  alignas(8) uint64_t squares_full, parts_full;
};

/// The inputs [begin, end) of this block; multiples of kSlice.
struct Slice {
  int begin, end;
  __device__ __forceinline__ explicit Slice(int width) {
    const int each = (width / kSlice + kBlocks - 1) / kBlocks * kSlice;
    begin = min(each * static_cast<int>(blockIdx.x % kBlocks), width);
    end = min(begin + each, width);
  }
  __device__ __forceinline__ bool one_chunk() const { return end - begin <= kChunk; }
};

/// The cluster's tokens: [first, first + count) of all.
struct ClusterTokens {
  int first, count;
  __device__ __forceinline__ explicit ClusterTokens(int tokens)
      : first(static_cast<int>(blockIdx.x) / kBlocks * kTokens),
        count(min(tokens - first, kTokens)) {}
};

__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }

/// A lane's inputs of a chunk, of one row.
struct RowPart {
  float4 value[kChunk / 128];
  __device__ __forceinline__ void load(const float* row, int first, int end) {
#pragma unroll
    for (int i = 0; i < kChunk / 128; ++i) {
      const int k = first + i * 128 + lane_id() * 4;
      value[i] = row != nullptr && k < end ? *reinterpret_cast<const float4*>(row + k)
                                           : make_float4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ float squares() const {
    float sum = 0;
#pragma unroll
    for (const float4& v : value) sum += squares_of(v);
    return sum;
  }
  __device__ __forceinline__ float4 weighed(const RowPart& weight, int i) const {
    const float4 v = value[i], w = weight.value[i];
    return make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
  }
};

/// A warp's tokens in a chunk.
struct WarpRows {
  RowPart row[kWarpTokens];

  __device__ __forceinline__ void load(const NormRows& norm, const ClusterTokens& tokens, int first,
                                       int end) {
#pragma unroll
    for (int i = 0; i < kWarpTokens; ++i) {
      const int token = warp_id() + i * kWarps;
      const float* from =
          token < tokens.count ? norm.x + int64_t{tokens.first + token} * norm.width : nullptr;
      row[i].load(from, first, end);
    }
  }
  __device__ __forceinline__ void add_squares(float (&squares)[kWarpTokens]) const {
#pragma unroll
    for (int i = 0; i < kWarpTokens; ++i) squares[i] += row[i].squares();
  }
  template <class Shared>
  __device__ __forceinline__ void store_factors(Shared& s, const RowPart& weight) const {
    const int lane = lane_id(), step = lane % 2, word = lane % 8 / 2 * 4;
#pragma unroll
    for (int i = 0; i < kWarpTokens; ++i) {
      const int token = warp_id() + i * kWarps;
      if (token >= kTokens) break;
#pragma unroll
      for (int part = 0; part < kChunk / 128; ++part) {
        const float4 v = row[i].weighed(weight, part);
        const uint2 high = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
        const uint2 low = make_uint2(pack_bf16(v.x - low_bf16(high.x), v.y - high_bf16(high.x)),
                                     pack_bf16(v.z - low_bf16(high.y), v.w - high_bf16(high.y)));
        const int panel = part * 2 + lane / 16;
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
          const int half = turn ^ lane / 16;  // the other panel has the same banks
          const int piece = lane / 8 % 2 * 4 + step * 2 + half;
          const int at = token * 128 + (piece ^ token % 8) * 16 + word;
          *reinterpret_cast<uint32_t*>(&s.high[panel][at]) = half == 0 ? high.x : high.y;
          *reinterpret_cast<uint32_t*>(&s.low[panel][at]) = half == 0 ? low.x : low.y;
        }
      }
    }
  }
  /// The normed rows, in either or both precisions.
  __device__ __forceinline__ void store_normed(const NormRows& norm, const ClusterTokens& tokens,
                                               const RowPart& weight,
                                               const float (&scale)[kWarpTokens], int first,
                                               int end) const {
#pragma unroll
    for (int i = 0; i < kWarpTokens; ++i) {
      const int token = warp_id() + i * kWarps;
      if (token >= tokens.count) break;
#pragma unroll
      for (int part = 0; part < kChunk / 128; ++part) {
        const int k = first + part * 128 + lane_id() * 4;
        if (k >= end) break;
        const float4 v = row[i].weighed(weight, part);
        const float4 y =
            make_float4(v.x * scale[i], v.y * scale[i], v.z * scale[i], v.w * scale[i]);
        const int64_t at = int64_t{tokens.first + token} * norm.width + k;
        if (norm.y_f32 != nullptr) *reinterpret_cast<float4*>(norm.y_f32 + at) = y;
        if (norm.y_bf16 != nullptr) {
          *reinterpret_cast<uint2*>(static_cast<bf16*>(norm.y_bf16) + at) =
              make_uint2(pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
        }
      }
    }
  }
};

/// Whole warp: this block's squares of its tokens.
template <class Shared>
__device__ __forceinline__ void store_squares(Shared& s, const float (&squares)[kWarpTokens]) {
#pragma unroll
  for (int i = 0; i < kWarpTokens; ++i) {
    const float sum = warp_sum(squares[i]);
    const int token = warp_id() + i * kWarps;
    if (lane_id() == 0 && token < kTokens) s.squares[token] = sum;
  }
}

/// Whole warp: 1 / rms of a token, out of all blocks' squares.
template <class Shared>
__device__ __forceinline__ float join_scale(const Shared& s, const NormRows& norm, int token) {
  float all = s.all_squares[lane_id() % kBlocks][token];
#pragma unroll
  for (int step = 1; step < kBlocks; step *= 2) all += __shfl_xor_sync(kAllLanes, all, step);
  return rsqrtf(all / static_cast<float>(norm.width) + norm.eps);
}

}  // namespace switchyard::cuda::gate_parts
