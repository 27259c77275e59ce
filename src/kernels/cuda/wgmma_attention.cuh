// SPDX-License-Identifier: Apache-2.0
// The two forms of wgmma that attention adds to wgmma.cuh: scores begin from nothing, and weights times values has its left
// operand in registers and its right one with N innermost, as values lie in the cache.
// Source: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions", "Strides".
#pragma once
#include "kernels/cuda/wgmma.cuh"

namespace switchyard::cuda {

/// Describes an operand with N innermost and swizzled: 64 n of 8 k are 1024 bytes, the next 8 k follow, the next 64 n lie
/// `n_stride` bytes away. 16 k further is + 128.
__device__ __forceinline__ uint64_t wgmma_operand_n(uint32_t shared_address, uint32_t n_stride) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStrideOf8 = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kStrideOf8 | (uint64_t{n_stride >> 4} << 16) |
         ((shared_address & 0x3FFFF) >> 4);
}

/// d [64, 128] = a b^T, or += that; both in shared memory, K innermost.
template <bool kAdd>
__device__ __forceinline__ void wgmma_scores(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" SWITCHYARD_TEXT_128
      "}, %64, %65, add, 1, 1, 0, 0;\n"
      "}"
      : SWITCHYARD_LIST_128
      : "l"(a), "l"(b), "n"(kAdd ? 1 : 0));
}

/// d [64, N] += a b for a [64, 16] in registers (lane 4 g + q: rows g, g + 8, then k + 8 of both) and b with N innermost.
#define SWITCHYARD_WGMMA_VALUES(kN, k0, k1, k2, k3, kB)                                            \
  __device__ __forceinline__ void wgmma_values(float(&d)[kN / 2], const uint32_t* a, uint64_t b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN                                           \
                 "k16.f32.bf16.bf16 {" SWITCHYARD_TEXT_##kN "}, {%" #k0 ", %" #k1 ", %" #k2        \
                                                            ", %" #k3 "}, %" #kB ", 1, 1, 1, 1;"   \
                 : SWITCHYARD_LIST_##kN                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
SWITCHYARD_WGMMA_VALUES(64, 32, 33, 34, 35, 36)
SWITCHYARD_WGMMA_VALUES(128, 64, 65, 66, 67, 68)
#undef SWITCHYARD_WGMMA_VALUES

/// Keeps the compiler from moving accesses of accumulators over a wait: it knows nothing of what is under way.
template <int kCount>
__device__ __forceinline__ void wgmma_hold(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace switchyard::cuda
