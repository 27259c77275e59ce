// SPDX-License-Identifier: Apache-2.0
// Random weights in place. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox 4x32-10).
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

__device__ uint4 philox(uint4 counter, uint2 key) {
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

template <class T>
__global__ void fill_kernel(T* to, int64_t count, float bound, uint2 key) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * 4;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4; i < count; i += step) {
    const uint4 bits = philox(
        make_uint4(static_cast<uint32_t>(i / 4), static_cast<uint32_t>(i / 4 >> 32), 0, 0), key);
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    for (int j = 0; j < 4 && i + j < count; ++j) {
      const float unit = static_cast<float>(words[j] >> 8) * 0x1p-23f - 1.0f;  // [-1, 1)
      to[i + j] = from_f32<T>(unit * bound);
    }
  }
}

}  // namespace

void fill_random(void* to, DType dtype, int64_t count, float bound, uint64_t seed,
                 StreamHandle stream) noexcept {
  if (count == 0) return;
  const uint2 key = make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const int blocks = num_multiprocessors() * 8;
  if (dtype == DType::f32) {
    fill_kernel<<<blocks, 256, 0, stream>>>(static_cast<float*>(to), count, bound, key);
  } else {
    fill_kernel<<<blocks, 256, 0, stream>>>(static_cast<bf16*>(to), count, bound, key);
  }
}

}  // namespace switchyard::cuda
