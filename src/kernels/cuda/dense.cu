// SPDX-License-Identifier: Apache-2.0
// Dense products without a library.
//
// plain: one warp for one output column and up to 8 tokens, any shape, f32 or bf16.
// skinny: T <= 32, bf16, k % 32 == 0. One block owns 16 weight rows and its 8 warps share out k; a lane loads 16 contiguous
//   bytes of a weight row straight into mma operands. The order of k inside a step is permuted the same way for both
//   operands, so no shared memory is needed for it. Weights are the 16-row operand, tokens the 8-column one. Bound by the
//   weights' bytes: n k 2 / bandwidth. The split of k is fixed, so a token's bits depend on nothing but its row.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kPlainWarps = 8, kPlainTokens = 8;
constexpr int kSkinnyWarps = 8, kSkinnyRows = 16;
constexpr int64_t kSkinnyTokens = 32;

__device__ void store(const Dense& a, int64_t t, int64_t n, float sum) {
  float value = a.alpha * sum + (a.bias != nullptr ? a.bias[n] : 0.0f);
  float* to = a.y + t * a.n + n;
  if (a.accumulate) value += *to;
  *to = value;
}

template <class T>
__global__ void __launch_bounds__(kPlainWarps* kWarp) plain_kernel(Dense a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t n = int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / kWarp;
  const int64_t first = int64_t{blockIdx.y} * kPlainTokens;
  const int64_t left = a.tokens - first;
  const int count = static_cast<int>(left < kPlainTokens ? left : kPlainTokens);
  if (n >= a.n) return;
  const T* w = static_cast<const T*>(a.weight) + n * a.k;
  const T* x = static_cast<const T*>(a.x) + first * a.k;
  float sum[kPlainTokens] = {};
  for (int64_t i = lane; i < a.k; i += kWarp) {
    const float weight = to_f32(w[i]);
#pragma unroll
    for (int t = 0; t < kPlainTokens; ++t) {
      if (t < count) sum[t] += weight * to_f32(x[t * a.k + i]);
    }
  }
#pragma unroll
  for (int t = 0; t < kPlainTokens; ++t) {
    const float all = warp_sum(sum[t]);
    if (lane == 0 && t < count) store(a, first + t, n, all);
  }
}

// kTiles tiles of 8 tokens.
template <int kTiles>
__global__ void __launch_bounds__(kSkinnyWarps* kWarp) skinny_kernel(Dense a) {
  __shared__ float part[kSkinnyWarps][kTiles][kSkinnyRows][8];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
  const int64_t row = int64_t{blockIdx.x} * kSkinnyRows + group;
  const bool low = row < a.n, high = row + 8 < a.n;
  const bf16* w = static_cast<const bf16*>(a.weight) + row * a.k + quad * 8;
  const bf16* x = static_cast<const bf16*>(a.x) + quad * 8;
  const uint4 zero = make_uint4(0, 0, 0, 0);
  float c[kTiles][4] = {};
#pragma unroll 4
  for (int64_t k = warp * 32; k < a.k; k += kSkinnyWarps * 32) {
    const uint4 w0 = low ? load_stream(w + k) : zero;
    const uint4 w1 = high ? load_stream(w + 8 * a.k + k) : zero;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int64_t t = tile * 8 + group;
      const uint4 b = t < a.tokens ? *reinterpret_cast<const uint4*>(x + t * a.k + k) : zero;
      mma_16816(c[tile], w0.x, w1.x, w0.y, w1.y, b.x, b.y);
      mma_16816(c[tile], w0.z, w1.z, w0.w, w1.w, b.z, b.w);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[warp][tile][group + (i / 2) * 8][quad * 2 + i % 2] = c[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTiles * kSkinnyRows * 8; i += blockDim.x) {
    const int r = i % kSkinnyRows, t = i / kSkinnyRows;
    const int64_t n = int64_t{blockIdx.x} * kSkinnyRows + r;
    if (n >= a.n || t >= a.tokens) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSkinnyWarps; ++s) sum += part[s][t / 8][r][t % 8];
    store(a, t, n, sum);
  }
}

}  // namespace

void dense_plain(const Dense& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>((args.n + kPlainWarps - 1) / kPlainWarps),
                  static_cast<unsigned>((args.tokens + kPlainTokens - 1) / kPlainTokens));
  const auto kernel = args.dtype == DType::f32 ? plain_kernel<float> : plain_kernel<bf16>;
  kernel<<<grid, kPlainWarps * kWarp, 0, stream>>>(args);
}

bool dense_skinny_accepts(const Dense& args) noexcept {
  return args.dtype == DType::bf16 && args.tokens <= kSkinnyTokens && args.k % 32 == 0;
}

void dense_skinny(const Dense& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const auto grid = static_cast<unsigned>((args.n + kSkinnyRows - 1) / kSkinnyRows);
  const auto kernel = args.tokens <= 8    ? skinny_kernel<1>
                      : args.tokens <= 16 ? skinny_kernel<2>
                                          : skinny_kernel<4>;
  kernel<<<grid, kSkinnyWarps * kWarp, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
