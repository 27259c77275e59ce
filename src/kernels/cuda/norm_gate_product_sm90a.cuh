// SPDX-License-Identifier: Apache-2.0
// The products of norm_gate_sm90a.cu: gate rows out of registers by tokens out of shared memory.
//
//   group   4 warps, 64 experts x 40 tokens: wgmma m64n40k16, once by the high parts of the factors and once by the low ones. Groups have
//           other experts, or another share of the inputs
//   gate    lane 4 g + q of warp w has the rows 16 w + g and + 8: of each 32 inputs those from 8 q to 8 q + 7, 16 bytes, so the order of
//           inputs in a step is not that of memory; the factors lie in the same order
#pragma once
#include "kernels/cuda/norm_gate_tokens_sm90a.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace switchyard::cuda::gate_parts {

inline constexpr int kGroups = kWarps / 4, kGroupExperts = 64;
inline constexpr int kSums = kTokens / 2;  ///< of a thread

/// Who multiplies what: kWide groups side by side have 64 experts each; the rest share out the inputs.
template <int kWide_>
struct Split {
  static constexpr int kWide = kWide_, kShares = kGroups / kWide;
  static constexpr int kShareInputs = kChunk / kShares;
  static constexpr int kPortion = kShareInputs < 128 ? kShareInputs : 128;  ///< in registers
  static constexpr int kPortions = kShareInputs / kPortion;
  static constexpr int kExperts = kWide * kGroupExperts;
  static constexpr int kPerLane = kExperts / kWarp;  ///< in scoring
  using Shared = SharedOf<kExperts, kShares>;
};

__device__ __forceinline__ int group_id() { return warp_id() / 4; }
/// The first expert of this thread's group.
template <class SplitT>
__device__ __forceinline__ int group_expert() {
  return group_id() % SplitT::kWide * kGroupExperts;
}
template <class SplitT>
__device__ __forceinline__ int group_share() {
  return group_id() / SplitT::kWide;
}

/// d [64, 40] += a b^T for a [64, 16] in registers (rows g, g + 8, then k + 8 of both) and b in shared memory, K innermost.
__device__ __forceinline__ void multiply_tokens(float (&d)[kSums], uint32_t a0, uint32_t a1,
                                                uint32_t a2, uint32_t a3, uint64_t b) {
  static_assert(kTokens == 40);
  asm volatile("wgmma.mma_async.sync.aligned.m64n40k16.f32.bf16.bf16 {" SWITCHYARD_TEXT_40
               "}, {%20, %21, %22, %23}, %24, 1, 1, 1, 0;"
               : SWITCHYARD_LIST_40
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

/// A thread's part of its group's gate rows, for a portion of its inputs of a chunk.
template <class SplitT>
struct GateRows {
  static constexpr int kSteps = SplitT::kPortion / 32;
  uint4 row[kSteps], row_8[kSteps];

  /// Rows beyond the last expert repeat it, and nobody reads what they give; zeros beyond `end`.
  __device__ __forceinline__ void load(const void* gate, int64_t stride, int portion, int experts,
                                       int chunk, int end) {
    const int first = group_expert<SplitT>() + warp_id() % 4 * 16 + lane_id() / 4;
    const int k = chunk + group_share<SplitT>() * SplitT::kShareInputs + portion * SplitT::kPortion;
    const auto* from = static_cast<const bf16*>(gate) + k + lane_id() % 4 * 8;
    const bf16* at = from + min(first, experts - 1) * stride;
    const bf16* at_8 = from + min(first + 8, experts - 1) * stride;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      row[i] = row_8[i] = make_uint4(0, 0, 0, 0);
      if (k + i * 32 >= end) continue;
      row[i] = *reinterpret_cast<const uint4*>(at + i * 32);
      row_8[i] = *reinterpret_cast<const uint4*>(at_8 + i * 32);
    }
  }

  /// sum += rows times factors, all of it or by the high parts alone.
  template <bool kBoth>
  __device__ __forceinline__ void multiply(float (&sum)[kSums], const typename SplitT::Shared& s,
                                           int portion) const {
    const uint64_t high = wgmma_operand(shared_address(s.high)),
                   low = wgmma_operand(shared_address(s.low));
    const int first = (group_share<SplitT>() * SplitT::kPortions + portion) * kSteps;
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint4 a = row[i], b = row_8[i];
      // 32 inputs: half of a panel's row.
      const int at = (first + i) / 2 * (kPanelBytes >> 4) + (first + i) % 2 * 4;
      if constexpr (kBoth) multiply_tokens(sum, a.x, b.x, a.y, b.y, low + at);
      multiply_tokens(sum, a.x, b.x, a.y, b.y, high + at);
      if constexpr (kBoth) multiply_tokens(sum, a.z, b.z, a.w, b.w, low + at + 2);
      multiply_tokens(sum, a.z, b.z, a.w, b.w, high + at + 2);
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (float& value : sum) asm volatile("" : "+f"(value)::"memory");
  }
};

/// A group's sums.
template <class SplitT>
__device__ __forceinline__ void store_sums(typename SplitT::Shared& s, const float (&sum)[kSums]) {
  const int expert = group_expert<SplitT>() + warp_id() % 4 * 16 + lane_id() / 4;
  const int token = lane_id() % 4 * 2;
  float* to = s.sum[group_share<SplitT>()];
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[(j * 8 + token + i % 2) * SplitT::Shared::kStride + expert + i / 2 * 8] = sum[4 * j + i];
    }
  }
}

/// The i-th four sums of all shares together.
template <class SplitT>
__device__ __forceinline__ float4 sum_of_shares(const typename SplitT::Shared& s, int i) {
  float4 all = *reinterpret_cast<const float4*>(s.sum[0] + i * 4);
#pragma unroll
  for (int share = 1; share < SplitT::kShares; ++share) {
    const float4 v = *reinterpret_cast<const float4*>(s.sum[share] + i * 4);
    all = make_float4(all.x + v.x, all.y + v.y, all.z + v.z, all.w + v.w);
  }
  return all;
}

}  // namespace switchyard::cuda::gate_parts
