// SPDX-License-Identifier: Apache-2.0
// Random weights in place, by Philox (philox.cuh).
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

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

template <class T>
__global__ void add_kernel(T* to, int64_t count, int64_t width, const float* row, float scale) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from_f32<T>(to_f32(to[i]) + scale * row[i % width]);
  }
}

__global__ void round_kernel(float* values, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] = to_f32(from_f32<bf16>(values[i]));
}

}  // namespace

void round_to_bf16(float* values, int64_t count, StreamHandle stream) noexcept {
  if (count > 0) round_kernel<<<grid_of(count, 256), 256, 0, stream>>>(values, count);
}

void add_to_rows(void* to, DType dtype, int64_t rows, int64_t width, const float* row, float scale,
                 StreamHandle stream) noexcept {
  const int64_t count = rows * width;
  if (count == 0) return;
  const int blocks = num_multiprocessors() * 8;
  if (dtype == DType::f32) {
    add_kernel<<<blocks, 256, 0, stream>>>(static_cast<float*>(to), count, width, row, scale);
  } else {
    add_kernel<<<blocks, 256, 0, stream>>>(static_cast<bf16*>(to), count, width, row, scale);
  }
}

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
