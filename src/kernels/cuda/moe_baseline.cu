// SPDX-License-Identifier: Apache-2.0
// Plain kernels, bound by memory: one block a row, 16 bytes a thread at a time; and a read of everything by all threads with
// eight loads each under way.
#include "kernels/cuda/moe_baseline.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) gather_kernel(GatherRows a) {
  const int64_t row = blockIdx.x, chunks = a.width / 8;
  const auto* from = static_cast<const uint4*>(a.x) + a.row_token[row] * chunks;
  auto* to = static_cast<uint4*>(a.to) + row * chunks;
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) add_kernel(AddRows a) {
  const int64_t row = blockIdx.x, chunks = a.width / 4;
  const float weight = a.row_weight[row];
  const auto* from = reinterpret_cast<const float4*>(a.rows) + row * chunks;
  auto* y = reinterpret_cast<float4*>(a.y) + a.row_token[row] * chunks;
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) {
    const float4 add = from[i];
    float4 sum = y[i];
    sum.x = fmaf(weight, add.x, sum.x);
    sum.y = fmaf(weight, add.y, sum.y);
    sum.z = fmaf(weight, add.z, sum.z);
    sum.w = fmaf(weight, add.w, sum.w);
    y[i] = sum;
  }
}

constexpr int kLoads = 8;

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* from, int64_t chunks, uint32_t* sink) {
  constexpr int64_t kPiece = int64_t{kThreads} * kLoads;
  uint32_t sum = 0;
  for (int64_t at = blockIdx.x * kPiece; at < chunks; at += gridDim.x * kPiece) {
    uint4 value[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) value[i] = __ldcs(from + at + i * kThreads + threadIdx.x);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum ^= value[i].x ^ value[i].y ^ value[i].z ^ value[i].w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

}  // namespace

void gather_rows(const GatherRows& args, StreamHandle stream) noexcept {
  if (args.rows == 0) return;
  gather_kernel<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
}

void add_rows(const AddRows& args, StreamHandle stream) noexcept {
  if (args.num_rows == 0) return;
  add_kernel<<<static_cast<unsigned>(args.num_rows), kThreads, 0, stream>>>(args);
}

void read_memory(const void* from, int64_t bytes, uint32_t* sink, StreamHandle stream) noexcept {
  read_kernel<<<num_multiprocessors() * 8, kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                                  bytes / 16, sink);
}

}  // namespace switchyard::cuda
