// SPDX-License-Identifier: Apache-2.0
// Heads between the q, k, v product and attention: norm, clip, rope, and the store to q and the caches. One warp for one head of
// one token. Bound by memory at many tokens and by latency at few.
// Source: Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kHeadWarps = 4;

// Mean square of `width` values, by one warp.
__device__ float warp_rms_scale(const float* x, int64_t width, float eps) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) sum += x[i] * x[i];
  return rsqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// One warp for one head of one token: q heads, then k heads, then v heads. Any width, any rotary part.
template <class T>
__global__ void __launch_bounds__(kHeadWarps* kWarp) prepare_kernel(PrepareHeads a) {
  let_next_begin();
  wait_for_previous();
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

template <int kPairs>
struct Pairs {  // values z and z + half of kPairs neighbouring z
  float low[kPairs], high[kPairs];
};
template <int kPairs>
__device__ __forceinline__ void load_run(const float* from, float (&to)[kPairs]) {
  if constexpr (kPairs == 1) to[0] = *from;
  if constexpr (kPairs == 2)
    *reinterpret_cast<float2*>(to) = *reinterpret_cast<const float2*>(from);
  if constexpr (kPairs == 4)
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}
template <int kPairs>
__device__ __forceinline__ Pairs<kPairs> load_pairs(const float* from) {
  Pairs<kPairs> pairs;
  load_run<kPairs>(from, pairs.low);
  load_run<kPairs>(from + kPairs * kWarp, pairs.high);
  return pairs;
}
template <int kPairs>
__device__ __forceinline__ void store_run(const float (&from)[kPairs], bf16* to) {
  if constexpr (kPairs == 1) *to = from_f32<bf16>(from[0]);
  if constexpr (kPairs == 2) *reinterpret_cast<uint32_t*>(to) = pack_bf16(from[0], from[1]);
  if constexpr (kPairs == 4) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3]));
  }
}

// 1 / rms over all heads of a kind, by one warp.
__device__ float full_width_scale(const float* x, int64_t width, float eps) {
  const auto* quads = reinterpret_cast<const float4*>(x);
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kWarp; i < width / 4; i += kWarp) sum += squares_of(quads[i]);
  return rsqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// The same for bf16 heads of 64, 128 or 256 values that are turned as a whole: a lane holds kPairs = Z / 64 neighbours and
// their partners half a head away, so each value is read once. What does not depend on qkv is read before the launch before
// has ended.
template <int kPairs>
__global__ void __launch_bounds__(kHeadWarps* kWarp) prepare_turned_kernel(PrepareHeads a) {
  constexpr int kHalf = kPairs * kWarp, kWidth = 2 * kHalf;
  const int64_t t = blockIdx.y;
  const int first = static_cast<int>(threadIdx.x) % kWarp * kPairs;
  const int head = blockIdx.x * kHeadWarps + threadIdx.x / kWarp;
  const bool exists = head < a.heads + 2 * a.kv_heads;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  const bool full = a.norm == QkNormKind::full_width;
  Pairs<kPairs> weight, turn;  // turn: cos and sin
  int64_t slot = 0;
  if (exists) {
    slot = a.slot[t];
    if (!is_v && a.norm != QkNormKind::none) {
      const int own = is_q ? head : head - a.heads;
      weight = load_pairs<kPairs>((is_q ? a.q_norm : a.k_norm) + (full ? own * kWidth : 0) + first);
    }
    if (!is_v) {
      const int64_t angle = int64_t{a.rope_row[t]} * kHalf + first;
      load_run<kPairs>(a.cos + angle, turn.low);
      load_run<kPairs>(a.sin + angle, turn.high);
    }
  }
  let_next_begin();
  wait_for_previous();
  if (!exists) return;
  const float* row = a.qkv + t * (a.heads + 2 * a.kv_heads) * kWidth;
  Pairs<kPairs> x = load_pairs<kPairs>(row + head * kWidth + first);
  if (!is_v && a.norm != QkNormKind::none) {
    float scale = 0;
    if (full) {
      scale = full_width_scale(row + (is_q ? 0 : a.heads * kWidth),
                               int64_t{is_q ? a.heads : a.kv_heads} * kWidth, a.eps);
    } else {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) sum += x.low[i] * x.low[i] + x.high[i] * x.high[i];
      scale = rsqrtf(warp_sum(sum) / kWidth + a.eps);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      x.low[i] = x.low[i] * scale * weight.low[i];
      x.high[i] = x.high[i] * scale * weight.high[i];
    }
  }
  if (a.clip > 0) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      x.low[i] = fminf(fmaxf(x.low[i], -a.clip), a.clip);
      x.high[i] = fminf(fmaxf(x.high[i], -a.clip), a.clip);
    }
  }
  if (!is_v) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float low = x.low[i], high = x.high[i];
      x.low[i] = low * turn.low[i] - high * turn.high[i];
      x.high[i] = high * turn.low[i] + low * turn.high[i];
    }
  }
  bf16* to = static_cast<bf16*>(a.q) + (t * a.heads + head) * kWidth;
  if (!is_q) {
    const int64_t block = slot / a.block_tokens, offset = slot % a.block_tokens;
    const int g = is_v ? head - a.heads - a.kv_heads : head - a.heads;
    to = static_cast<bf16*>(is_v ? a.v_cache : a.k_cache) +
         ((block * a.kv_heads + g) * a.block_tokens + offset) * kWidth;
  }
  store_run<kPairs>(x.low, to + first);
  store_run<kPairs>(x.high, to + kHalf + first);
}

}  // namespace

void prepare_heads(const PrepareHeads& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(grid_of(args.heads + 2 * args.kv_heads, kHeadWarps), grid_of(args.tokens, 1));
  auto* kernel = args.dtype == DType::f32 ? prepare_kernel<float> : prepare_kernel<bf16>;
  if (args.dtype == DType::bf16 && args.rotary_dim == args.head_dim) {
    if (args.head_dim == 64) kernel = prepare_turned_kernel<1>;
    if (args.head_dim == 128) kernel = prepare_turned_kernel<2>;
    if (args.head_dim == 256) kernel = prepare_turned_kernel<4>;
  }
  launch_chained(kernel, grid, kHeadWarps * kWarp, 0, stream, args);
}

}  // namespace switchyard::cuda
