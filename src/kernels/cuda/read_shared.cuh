// SPDX-License-Identifier: Apache-2.0
// 16 bytes of shared memory by their address, for rings that copies fill behind the compiler's back: such a read is made where it stands.
#pragma once
#include <cstdint>

#include <cuda_runtime.h>

namespace switchyard::cuda {

__device__ __forceinline__ uint4 read_shared(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

}  // namespace switchyard::cuda
