// SPDX-License-Identifier: Apache-2.0
// base/random.h on the device. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox 4x32-10).
#pragma once
#include <cstdint>

#include <cuda_runtime.h>

namespace switchyard::cuda {

__device__ inline uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.x, b = uint64_t{0xCD9E8D57u} * counter.z;
    counter =
        make_uint4(static_cast<uint32_t>(b >> 32) ^ counter.y ^ key.x, static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter.w ^ key.y, static_cast<uint32_t>(a));
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace switchyard::cuda
