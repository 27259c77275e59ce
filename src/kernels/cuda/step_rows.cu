// SPDX-License-Identifier: Apache-2.0
// Rows between the products: embedding, RMS norm (alone, and with the gate's logits), heads (norm, clip, rope, store), SwiGLU.
// Bound by memory at many tokens and by latency at few.
// Source: Zhang and Sennrich 2019, arXiv 1910.07467; Su et al. 2021, arXiv 2104.09864; Shazeer 2020, arXiv 2002.05202.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kRouteThreads = 128;  // 4 warps, an expert each
constexpr int kRouteExperts = kRouteThreads / kWarp;
constexpr int kHeadWarps = 4;

template <class T>
__global__ void embed_kernel(Embed a) {
  const int64_t t = blockIdx.x;
  const T* from = static_cast<const T*>(a.table) + int64_t{a.token[t]} * a.width;
  for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
    a.x[t * a.width + i] = to_f32(from[i]) * a.scale;
  }
}

// rsqrt of the mean square of a row, by the whole block.
__device__ float rms_scale(const float* row, int64_t width, float eps, float* scratch) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += row[i] * row[i];
  return rsqrtf(block_sum(sum, scratch) / static_cast<float>(width) + eps);
}

__device__ void write_norm(const NormRows& a, int64_t t, const float* row, float scale) {
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
    const float y = row[i] * scale * a.weight[i];
    if (a.y_f32 != nullptr) a.y_f32[t * a.width + i] = y;
    if (a.y_bf16 != nullptr) static_cast<bf16*>(a.y_bf16)[t * a.width + i] = from_f32<bf16>(y);
  }
}

__global__ void norm_kernel(NormRows a) {
  __shared__ float scratch[kWarp];
  const int64_t t = blockIdx.x;
  const float* row = a.x + (a.row != nullptr ? int64_t{a.row[t]} : t) * a.width;
  write_norm(a, t, row, rms_scale(row, a.width, a.eps, scratch));
}

// One round trip: the row, the norm's weights and a warp's gate row are asked for together; the scale comes last. A block
// has an expert for each warp; x times the weights waits in shared memory.
__global__ void __launch_bounds__(kRouteThreads) norm_route_kernel(NormRoute a) {
  extern __shared__ __align__(16) float weighted[];
  __shared__ float scratch[kWarp];
  constexpr int kAhead = 8;  // float4 of the gate's row that a lane holds early
  const int64_t t = blockIdx.y;
  const int quads = static_cast<int>(a.norm.width / 4), lane = threadIdx.x % kWarp;
  const int e = blockIdx.x * kRouteExperts + threadIdx.x / kWarp;
  const auto* x = reinterpret_cast<const float4*>(a.norm.x + t * a.norm.width);
  const auto* weight = reinterpret_cast<const float4*>(a.norm.weight);
  const auto* gate =
      reinterpret_cast<const float4*>(a.gate + int64_t{e < a.num_experts ? e : 0} * a.norm.width);
  auto* to = reinterpret_cast<float4*>(weighted);
  float4 early[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    early[i] = i * kWarp + lane < quads ? gate[i * kWarp + lane] : make_float4(0, 0, 0, 0);
  }
  float squares = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < quads; i += kRouteThreads) {
    const float4 v = x[i], w = weight[i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    to[i] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
  }
  const float scale =
      rsqrtf(block_sum(squares, scratch) / static_cast<float>(a.norm.width) + a.norm.eps);
  const auto dot = [&](const float4& g, int i) {
    const float4 v = to[i];
    return g.x * v.x + g.y * v.y + g.z * v.z + g.w * v.w;
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
  for (int64_t i = threadIdx.x; i < a.norm.width; i += kRouteThreads) {
    const float y = weighted[i] * scale;
    if (a.norm.y_f32 != nullptr) a.norm.y_f32[t * a.norm.width + i] = y;
    if (a.norm.y_bf16 != nullptr) {
      static_cast<bf16*>(a.norm.y_bf16)[t * a.norm.width + i] = from_f32<bf16>(y);
    }
  }
}

// Mean square of `width` values, by one warp.
__device__ float warp_rms_scale(const float* x, int64_t width, float eps) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) sum += x[i] * x[i];
  return rsqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// One warp for one head of one token: q heads, then k heads, then v heads.
template <class T>
__global__ void __launch_bounds__(kHeadWarps* kWarp) prepare_kernel(PrepareHeads a) {
  const int64_t t = blockIdx.y;
  const int lane = threadIdx.x % kWarp, head = blockIdx.x * kHeadWarps + threadIdx.x / kWarp;
  const int total = a.heads + 2 * a.kv_heads, width = a.head_dim;
  if (head >= total) return;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  const float* row = a.qkv + t * total * width;
  const float* x = row + int64_t{head} * width;
  const float* weight = nullptr;
  float scale = 1;
  if (!is_v && a.norm == QkNormKind::per_head) {
    scale = warp_rms_scale(x, width, a.eps);
    weight = is_q ? a.q_norm : a.k_norm;
  } else if (!is_v && a.norm == QkNormKind::full_width) {
    const int64_t first = is_q ? 0 : int64_t{a.heads} * width;
    scale = warp_rms_scale(row + first, int64_t{is_q ? a.heads : a.kv_heads} * width, a.eps);
    weight = is_q ? a.q_norm + int64_t{head} * width : a.k_norm + int64_t{head - a.heads} * width;
  }
  T* to = nullptr;
  if (is_q) {
    to = static_cast<T*>(a.q) + (t * a.heads + head) * width;
  } else {
    const int64_t block = a.slot[t] / a.block_tokens, offset = a.slot[t] % a.block_tokens;
    const int g = is_v ? head - a.heads - a.kv_heads : head - a.heads;
    to = static_cast<T*>(is_v ? a.v_cache : a.k_cache) +
         ((block * a.kv_heads + g) * a.block_tokens + offset) * width;
  }
  const auto value = [&](int i) {
    float v = x[i] * scale;
    if (weight != nullptr) v *= weight[i];
    return a.clip > 0 ? fminf(fmaxf(v, -a.clip), a.clip) : v;
  };
  const int half = is_v ? 0 : a.rotary_dim / 2;
  const int64_t angle = half > 0 ? int64_t{a.rope_row[t]} * half : 0;
  for (int i = lane; i < half; i += kWarp) {
    const float low = value(i), high = value(i + half);
    const float c = a.cos[angle + i], s = a.sin[angle + i];
    to[i] = from_f32<T>(low * c - high * s);
    to[i + half] = from_f32<T>(high * c + low * s);
  }
  for (int i = 2 * half + lane; i < width; i += kWarp) to[i] = from_f32<T>(value(i));
}

__device__ float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

template <class T>
__global__ void swiglu_kernel(Swiglu a) {
  const int64_t t = blockIdx.y, i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.ffn_width) return;
  const float gate = a.gate_up[t * 2 * a.ffn_width + i];
  const float up = a.gate_up[(t * 2 + 1) * a.ffn_width + i];
  const float weight = a.weight != nullptr ? sigmoid(a.weight[t]) : 1.0f;
  static_cast<T*>(a.h)[t * a.ffn_width + i] = from_f32<T>(gate * sigmoid(gate) * up * weight);
}

unsigned grid_of(int64_t count, int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace

void embed(const Embed& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const auto kernel = args.dtype == DType::f32 ? embed_kernel<float> : embed_kernel<bf16>;
  kernel<<<grid_of(args.tokens, 1), kRowThreads, 0, stream>>>(args);
}

void norm_rows(const NormRows& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  norm_kernel<<<grid_of(args.tokens, 1), kRowThreads, 0, stream>>>(args);
}

bool norm_route_accepts(const NormRoute& args) noexcept {
  constexpr int64_t kMostTokens = 16, kMostWidth = 11264;  // of 48 KB of shared memory
  return args.norm.tokens <= kMostTokens && args.norm.row == nullptr &&
         args.norm.width <= kMostWidth && args.norm.width % 4 == 0;
}

void norm_route(const NormRoute& args, StreamHandle stream) noexcept {
  if (args.norm.tokens == 0) return;
  const dim3 grid(grid_of(args.num_experts, kRouteExperts), grid_of(args.norm.tokens, 1));
  const auto bytes = static_cast<size_t>(args.norm.width) * sizeof(float);
  norm_route_kernel<<<grid, kRouteThreads, bytes, stream>>>(args);
}

void prepare_heads(const PrepareHeads& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(grid_of(args.heads + 2 * args.kv_heads, kHeadWarps), grid_of(args.tokens, 1));
  const auto kernel = args.dtype == DType::f32 ? prepare_kernel<float> : prepare_kernel<bf16>;
  kernel<<<grid, kHeadWarps * kWarp, 0, stream>>>(args);
}

void swiglu(const Swiglu& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(grid_of(args.ffn_width, 256), grid_of(args.tokens, 1));
  const auto kernel = args.dtype == DType::f32 ? swiglu_kernel<float> : swiglu_kernel<bf16>;
  kernel<<<grid, 256, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
