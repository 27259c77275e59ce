// SPDX-License-Identifier: Apache-2.0
// The work of the attention kernels as numbered items: how many each sequence has, summed once by every block, and which
// one a number means. Also where a position's row lies in the paged cache.
#pragma once
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {

inline constexpr int kCacheTile = 16;  ///< blocks of the cache hold a multiple of these positions
inline constexpr int kUnit = 64;       ///< the same, for copies that are large enough
inline constexpr float kLog2e = 1.4426950408889634f;

/// 2^x to within 2 ulp; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Counts of the sequences, summed: at [b] those before sequence b, at [B] all.
struct ItemCounts {
  int32_t before[kMaxDecodeSequences + 1];
  int32_t warp_sum[32];
};

/// Whole block; ends in a barrier.
template <class Count>
__device__ void sum_counts(int sequences, ItemCounts& counts, const Count& count) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  int before = 0;
  for (int first = 0; first < sequences; first += static_cast<int>(blockDim.x)) {
    const int b = first + static_cast<int>(threadIdx.x);
    const int own = b < sequences ? count(b) : 0;
    int sum = own;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset <<= 1) {
      const int other = __shfl_up_sync(kAllLanes, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (lane == kWarp - 1) counts.warp_sum[warp] = sum;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < warps; ++w) {
      if (w == warp) sum += all;
      all += counts.warp_sum[w];
    }
    if (b < sequences) counts.before[b] = before + sum - own;
    before += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts.before[sequences] = before;
  __syncthreads();
}

/// The sequence to which item `index` of all belongs.
__device__ __forceinline__ int find_sequence(const ItemCounts& counts, int sequences, int index) {
  int low = 0, high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (counts.before[middle] <= index) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Row, of all (block, kv head, position) of a cache, of a sequence's position.
__device__ __forceinline__ int cache_row(const Attend& a, int sequence, int kv_head, int position) {
  const int32_t block = a.block_table[int64_t{sequence} * a.max_blocks + position / a.block_tokens];
  return (block * a.kv_heads + kv_head) * a.block_tokens + position % a.block_tokens;
}

/// Positions that one copy can bring.
inline int box_of(const Attend& a) { return a.block_tokens % kUnit == 0 ? kUnit : kCacheTile; }

/// Tokens that a sequence adds.
__device__ __forceinline__ int added_tokens(const Attend& a, int b) {
  return a.seq_offset[b + 1] - a.seq_offset[b];
}

/// The workspace: claims of the two launches, all zero between launches; then what attend_decode keeps there.
struct Claims {
  int32_t next, left;
};
inline constexpr int kClaimBytes = 256;
__device__ __forceinline__ Claims* decode_claims(const Attend& a) {
  return static_cast<Claims*>(a.workspace);
}
__device__ __forceinline__ Claims* prefill_claims(const Attend& a) {
  return static_cast<Claims*>(a.workspace) + 1;
}

/// One thread of each block, when it claims no more: the last one leaves the claims fit for the next launch.
__device__ __forceinline__ void leave_claims(Claims* claims) {
  if (atomicAdd(&claims->left, 1) != static_cast<int>(gridDim.x) - 1) return;
  claims->next = 0;
  claims->left = 0;
}

}  // namespace switchyard::cuda
