// SPDX-License-Identifier: Apache-2.0
// Rows between the products: RMS norm (alone, and with the gate's logits), SwiGLU. Bound by memory at many tokens and
// by latency at few. Source: Zhang and Sennrich 2019, arXiv 1910.07467; Shazeer 2020, arXiv 2002.05202.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kRowQuads =
    4;  // float4 of a row that a thread keeps; fewer would leave too little on its way from memory
constexpr int kRouteThreads = 128;  // 4 warps, an expert each
constexpr int kRouteExperts = kRouteThreads / kWarp;

__device__ __forceinline__ void store_normed(const NormRows& a, int64_t at, float y) {
  if (a.y_f32 != nullptr) a.y_f32[at] = y;
  if (a.y_bf16 != nullptr) static_cast<bf16*>(a.y_bf16)[at] = from_f32<bf16>(y);
}
__device__ __forceinline__ void store_normed(const NormRows& a, int64_t at, const float4& y) {
  if (a.y_f32 != nullptr) *reinterpret_cast<float4*>(a.y_f32 + at) = y;
  if (a.y_bf16 == nullptr) return;
  *reinterpret_cast<uint2*>(static_cast<bf16*>(a.y_bf16) + at) =
      make_uint2(pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
}

// Into y_split, column `at` of row t on.
__device__ __forceinline__ void store_split(const NormRows& a, int64_t t, int64_t at, float y) {
  if (a.y_split == nullptr) return;
  bf16* to = static_cast<bf16*>(a.y_split) + 2 * t * a.width + at;
  const bf16 high = from_f32<bf16>(y);
  to[0] = high;
  to[a.width] = from_f32<bf16>(y - to_f32(high));
}
__device__ __forceinline__ void store_split(const NormRows& a, int64_t t, int64_t at,
                                            const float4& y) {
  if (a.y_split == nullptr) return;
  bf16* to = static_cast<bf16*>(a.y_split) + 2 * t * a.width + at;
  const uint2 high = make_uint2(pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
  *reinterpret_cast<uint2*>(to) = high;
  *reinterpret_cast<uint2*>(to + a.width) =
      make_uint2(pack_bf16(y.x - low_bf16(high.x), y.y - high_bf16(high.x)),
                 pack_bf16(y.z - low_bf16(high.y), y.w - high_bf16(high.y)));
}

__device__ __forceinline__ const float* norm_row(const NormRows& a, int64_t t) {
  return a.x + (a.row != nullptr ? int64_t{a.row[t]} : t) * a.width;
}

// Any width: the row is read twice.
__global__ void norm_kernel(NormRows a) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  const float* row = norm_row(a, t);
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) sum += row[i] * row[i];
  const float scale = rsqrtf(block_sum(sum, scratch) / static_cast<float>(a.width) + a.eps);
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
    const float y = row[i] * scale * a.weight[i];
    store_normed(a, t * a.width + i, y);
    store_split(a, t, i, y);
  }
}

// Widths that fit in the block's registers, in multiples of 4: each value is read once.
__global__ void __launch_bounds__(kRowThreads) norm_quads_kernel(NormRows a) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  const int64_t t = blockIdx.x;
  const int quads = static_cast<int>(a.width / 4), threads = static_cast<int>(blockDim.x);
  const auto* weight = reinterpret_cast<const float4*>(a.weight);
  float4 x[kRowQuads], w[kRowQuads];
#pragma unroll
  for (int i = 0; i < kRowQuads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads;
    if (at < quads) w[i] = weight[at];
  }
  wait_for_previous();
  const auto* row = reinterpret_cast<const float4*>(norm_row(a, t));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kRowQuads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads;
    x[i] = at < quads ? row[at] : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kRowQuads; ++i) sum += squares_of(x[i]);
  const float scale = rsqrtf(block_sum(sum, scratch) / static_cast<float>(a.width) + a.eps);
#pragma unroll
  for (int i = 0; i < kRowQuads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads;
    if (at >= quads) break;
    const float4 y = make_float4(x[i].x * scale * w[i].x, x[i].y * scale * w[i].y,
                                 x[i].z * scale * w[i].z, x[i].w * scale * w[i].w);
    store_normed(a, t * a.width + at * 4, y);
    store_split(a, t, at * 4, y);
  }
}

// One round trip: the norm's weights and a warp's gate row are asked for before the launch before has ended; then comes the row,
// and the scale last. A block has an expert for each warp; x times the weights waits in shared memory.
__global__ void __launch_bounds__(kRouteThreads) norm_route_kernel(NormRoute a) {
  extern __shared__ __align__(16) float weighted[];
  __shared__ float scratch[kWarp];
  constexpr int kAhead = 16;  // float4 of the gate's row that a lane holds early
  constexpr int kWeights = 4;
  const int64_t t = blockIdx.y;
  const int quads = static_cast<int>(a.norm.width / 4), lane = threadIdx.x % kWarp;
  const int e = blockIdx.x * kRouteExperts + threadIdx.x / kWarp;
  const auto* x = reinterpret_cast<const float4*>(a.norm.x + t * a.norm.width);
  const auto* weight = reinterpret_cast<const float4*>(a.norm.weight);
  const auto* gate =
      reinterpret_cast<const float4*>(a.gate + int64_t{e < a.num_experts ? e : 0} * a.norm.width);
  auto* to = reinterpret_cast<float4*>(weighted);
  float4 early[kAhead], w[kWeights];
#pragma unroll
  for (int i = 0; i < kWeights; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kRouteThreads;
    w[i] = at < quads ? weight[at] : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    early[i] = i * kWarp + lane < quads ? gate[i * kWarp + lane] : make_float4(0, 0, 0, 0);
  }
  let_next_begin();
  wait_for_previous();
  float squares = 0;
  const auto weigh = [&](const float4& v, const float4& g, int at) {
    squares += squares_of(v);
    to[at] = make_float4(v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w);
  };
  float4 v[kWeights];
#pragma unroll
  for (int i = 0; i < kWeights; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kRouteThreads;
    if (at < quads) v[i] = x[at];
  }
#pragma unroll
  for (int i = 0; i < kWeights; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kRouteThreads;
    if (at < quads) weigh(v[i], w[i], at);
  }
#pragma unroll 4
  for (int at = threadIdx.x + kWeights * kRouteThreads; at < quads; at += kRouteThreads) {
    weigh(x[at], weight[at], at);
  }
  const float scale =
      rsqrtf(block_sum(squares, scratch) / static_cast<float>(a.norm.width) + a.norm.eps);
  const auto dot = [&](const float4& g, int i) {
    const float4 y = to[i];
    return g.x * y.x + g.y * y.y + g.z * y.z + g.w * y.w;
  };
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i * kWarp + lane < quads) sum += dot(early[i], i * kWarp + lane);
  }
#pragma unroll 8
  for (int i = kAhead * kWarp + lane; i < quads; i += kWarp) sum += dot(gate[i], i);
  sum = warp_sum(sum) * scale;
  if (lane == 0 && e < a.num_experts) a.logits[t * a.num_experts + e] = sum;
  if (blockIdx.x != 0) return;
  for (int i = threadIdx.x; i < quads; i += kRouteThreads) {
    const float4 y = to[i];
    store_normed(a.norm, t * a.norm.width + i * 4,
                 make_float4(y.x * scale, y.y * scale, y.z * scale, y.w * scale));
  }
}

__device__ float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

template <class T>
__global__ void swiglu_kernel(Swiglu a) {
  let_next_begin();
  wait_for_previous();
  const int64_t t = blockIdx.y, i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.ffn_width) return;
  const float gate = a.gate_up[t * 2 * a.ffn_width + i];
  const float up = a.gate_up[(t * 2 + 1) * a.ffn_width + i];
  const float weight = a.weight != nullptr ? sigmoid(a.weight[t]) : 1.0f;
  static_cast<T*>(a.h)[t * a.ffn_width + i] = from_f32<T>(gate * sigmoid(gate) * up * weight);
}

}  // namespace

void norm_rows(const NormRows& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  // By the width alone: the order of a token's sum must not depend on how many there are.
  const unsigned warps = grid_of(args.width, 4 * kRowQuads * kWarp);
  const bool quads = args.width % 4 == 0 && warps <= kRowThreads / kWarp;
  launch_chained(quads ? norm_quads_kernel : norm_kernel, dim3(grid_of(args.tokens, 1)),
                 quads ? warps * kWarp : kRowThreads, 0, stream, args);
}

bool norm_route_accepts(const NormRoute& args) noexcept {
  constexpr int64_t kMostTokens = 16, kMostWidth = 11264;  // of 48 KB of shared memory
  return args.norm.tokens <= kMostTokens && args.norm.row == nullptr &&
         args.norm.width <= kMostWidth && args.norm.width % 4 == 0;
}

void norm_route(const NormRoute& args, StreamHandle stream) noexcept {
  if (args.norm.tokens == 0) return;
  const dim3 grid(grid_of(args.num_experts, kRouteExperts), grid_of(args.norm.tokens, 1));
  launch_chained(norm_route_kernel, grid, kRouteThreads,
                 static_cast<size_t>(args.norm.width) * sizeof(float), stream, args);
}

void swiglu(const Swiglu& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(grid_of(args.ffn_width, 256), grid_of(args.tokens, 1));
  launch_chained(args.dtype == DType::f32 ? swiglu_kernel<float> : swiglu_kernel<bf16>, grid, 256,
                 0, stream, args);
}

}  // namespace switchyard::cuda
