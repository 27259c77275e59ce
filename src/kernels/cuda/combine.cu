// SPDX-License-Identifier: Apache-2.0
// Combine: the weighted sum of a token's expert rows, in f32 and in the order of its picks, onto the residual stream;
// and, if wanted, the RMS norm that the next layer reads, while the row is still in registers.
//
//   one block a token, 8 columns a thread at a time; rows [R, D] bf16, y [T, D] f32
//   cost  K rows of 2 D bytes read, 8 D bytes of y, 2 D written with the norm
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kColumns = 8;  // of a thread at a time
constexpr int kMaxThreads = 1024;
constexpr int kMaxStrips = 2;  // D <= 1024 * 8 * 2

struct Floats8 {
  float value[kColumns];
};

__device__ __forceinline__ Floats8 load_floats(const float* from) {
  Floats8 to;
  reinterpret_cast<float4*>(to.value)[0] = reinterpret_cast<const float4*>(from)[0];
  reinterpret_cast<float4*>(to.value)[1] = reinterpret_cast<const float4*>(from)[1];
  return to;
}
__device__ __forceinline__ void store_floats(const Floats8& from, float* to) {
  reinterpret_cast<float4*>(to)[0] = reinterpret_cast<const float4*>(from.value)[0];
  reinterpret_cast<float4*>(to)[1] = reinterpret_cast<const float4*>(from.value)[1];
}
__device__ __forceinline__ void add_scaled(Floats8& sum, float weight, const uint4& row) {
  const uint32_t pair[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum.value[2 * i] = fmaf(weight, low_bf16(pair[i]), sum.value[2 * i]);
    sum.value[2 * i + 1] = fmaf(weight, high_bf16(pair[i]), sum.value[2 * i + 1]);
  }
}

// The new 8 values of y[t] from `column` on.
__device__ Floats8 combined(const MoeFfn::Args& args, const bf16* rows, int64_t width, int top_k,
                            int64_t t, int64_t column) {
  Floats8 sum = {};
#pragma unroll 4
  for (int k = 0; k < top_k; ++k) {
    const int row = args.routing.pick_row[t * top_k + k];
    if (row < 0) continue;
    const auto* from = reinterpret_cast<const uint4*>(rows + row * width + column);
    add_scaled(sum, args.routing.weight[t * top_k + k], *from);
  }
  Floats8 y = load_floats(args.y + t * width + column);
  if (args.shared != nullptr) {
    const float weight = args.shared_weight != nullptr ? args.shared_weight[t] : 1.0f;
    const Floats8 shared = load_floats(args.shared + t * width + column);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      sum.value[i] = fmaf(weight, shared.value[i], sum.value[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) y.value[i] = fmaf(args.scale, sum.value[i], y.value[i]);
  return y;
}

// The sum over the block, in all threads.
__device__ float block_sum(float value) {
  __shared__ float warp_sums[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  if (lane == 0) warp_sums[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / 32 ? warp_sums[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__device__ void store_normed(const MoeFfn::Args& args, const Floats8& y, float inverse, int64_t at,
                             int64_t column) {
  const Floats8 weight = load_floats(args.next_norm + column);
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pair[i] = pack_bf16(y.value[2 * i] * inverse * weight.value[2 * i],
                        y.value[2 * i + 1] * inverse * weight.value[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(static_cast<bf16*>(args.next_x) + at) =
      make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

// Each thread owns kMaxStrips strips of 8 columns. kSum false: y is complete, only the norm is left.
template <bool kSum>
__global__ void __launch_bounds__(kMaxThreads)
    combine_tokens(MoeFfn::Args args, const bf16* rows, int64_t width, int top_k) {
  let_next_begin();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  Floats8 y[kMaxStrips] = {};
  float squares = 0;
#pragma unroll
  for (int s = 0; s < kMaxStrips; ++s) {
    const int64_t column = (static_cast<int64_t>(s) * blockDim.x + threadIdx.x) * kColumns;
    if (column >= width) break;
    if constexpr (kSum) {
      y[s] = combined(args, rows, width, top_k, t, column);
      store_floats(y[s], args.y + t * width + column);
    } else {
      y[s] = load_floats(args.y + t * width + column);
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares = fmaf(y[s].value[i], y[s].value[i], squares);
  }
  if (args.next_x == nullptr) return;
  const float mean = block_sum(squares) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + args.next_epsilon);
#pragma unroll
  for (int s = 0; s < kMaxStrips; ++s) {
    const int64_t column = (static_cast<int64_t>(s) * blockDim.x + threadIdx.x) * kColumns;
    if (column < width) store_normed(args, y[s], inverse, t * width + column, column);
  }
}

unsigned threads_of(int64_t width) noexcept {
  const int64_t threads = (width / kColumns + 31) / 32 * 32;
  return static_cast<unsigned>(threads < kMaxThreads ? threads : kMaxThreads);
}

}  // namespace

void launch_combine(const MoeFfn::Problem& problem, const MoeFfn::Args& args, const void* rows,
                    void* stream) noexcept {
  if (args.tokens == 0) return;
  launch_chained(combine_tokens<true>, dim3(static_cast<unsigned>(args.tokens)),
                 threads_of(problem.width), 0, static_cast<cudaStream_t>(stream), args,
                 static_cast<const bf16*>(rows), problem.width, problem.rule.top_k);
}

void launch_next_norm(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                      void* stream) noexcept {
  if (args.tokens == 0 || args.next_x == nullptr) return;
  launch_chained(combine_tokens<false>, dim3(static_cast<unsigned>(args.tokens)),
                 threads_of(problem.width), 0, static_cast<cudaStream_t>(stream), args,
                 static_cast<const bf16*>(nullptr), problem.width, problem.rule.top_k);
}

}  // namespace switchyard::cuda
