// SPDX-License-Identifier: Apache-2.0
// Heads between the q, k, v product and attention: norm, clip, rope, and the store to q and the caches. A block has a token, or one
// warp a head of one token. Bound by memory at many tokens and by latency at few.
// Source: Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/step_heads.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kHeadWarps = 4;
constexpr int kHeadsEach = 4;  // of a warp that has its token's heads in registers
constexpr int kMostHeads = 128;

/// Heads of a token, q, k and v, that a block holds in registers.
constexpr int most_heads(int pairs) { return pairs < 4 ? kMostHeads : kMostHeads / 2; }

template <class In>
__device__ __forceinline__ const In* products_of(const PrepareHeads& a);
template <>
__device__ __forceinline__ const float* products_of<float>(const PrepareHeads& a) {
  return a.qkv;
}
template <>
__device__ __forceinline__ const bf16* products_of<bf16>(const PrepareHeads& a) {
  return static_cast<const bf16*>(a.qkv_bf16);
}

// 1 / rms of `width` values, by one warp.
template <class In>
__device__ float warp_rms_scale(const In* x, int64_t width, float eps) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) sum += to_f32(x[i]) * to_f32(x[i]);
  return rsqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// One warp for one head of one token: q heads, then k heads, then v heads. Any width, any rotary part.
template <class T, class In>
__global__ void __launch_bounds__(kHeadWarps* kWarp) prepare_kernel(PrepareHeads a) {
  let_next_begin();
  wait_for_previous();
  const int64_t t = blockIdx.y;
  const int lane = threadIdx.x % kWarp, head = blockIdx.x * kHeadWarps + threadIdx.x / kWarp;
  const int total = a.heads + 2 * a.kv_heads, width = a.head_dim;
  if (head >= total) return;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  const In* row = products_of<In>(a) + t * total * width;
  const In* x = row + int64_t{head} * width;
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
    float v = to_f32(x[i]) * scale;
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

// 1 / rms over heads [first, end), from what each lane holds of each head's squares.
__device__ float heads_scale(const float (&squares)[kMostHeads][kWarp], int first, int end,
                             int width, float eps) {
  float sum = 0;
#pragma unroll 4
  for (int head = first; head < end; ++head) sum += squares[head][threadIdx.x % kWarp];
  return rsqrtf(warp_sum(sum) / static_cast<float>((end - first) * width) + eps);
}

// The same for bf16 heads of 64, 128 or 256 values that are turned as a whole: a block has a token and a warp kHeadsEach of its
// heads, all of whose values it asks for at once; a lane holds kPairs = Z / 64 neighbours and their partners half a head away.
// What does not depend on qkv is read before the launch before has ended.
template <int kPairs, class In>
__global__ void __launch_bounds__(most_heads(kPairs) / kHeadsEach * kWarp)
    prepare_token_kernel(PrepareHeads a) {
  constexpr int kHalf = kPairs * kWarp, kWidth = 2 * kHalf;
  __shared__ float squares[kMostHeads][kWarp];
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x % kWarp, first = lane * kPairs;
  const int begin = static_cast<int>(threadIdx.x) / kWarp * kHeadsEach;
  const int turned = a.heads + a.kv_heads, count = min(kHeadsEach, turned + a.kv_heads - begin);
  const bool full = a.norm == QkNormKind::full_width;
  const int64_t slot = a.slot[t];
  Pairs<kPairs> weight[kHeadsEach] = {}, turn = {}, x[kHeadsEach] = {};
  if (begin < turned) {
    const int64_t angle = int64_t{a.rope_row[t]} * kHalf + first;
    load_run<kPairs>(a.cos + angle, turn.low);
    load_run<kPairs>(a.sin + angle, turn.high);
  }
#pragma unroll
  for (int i = 0; i < kHeadsEach; ++i) {
    const int head = begin + i;
    if (a.norm == QkNormKind::none || head >= turned) break;
    const bool is_q = head < a.heads;
    const int own = full ? is_q ? head : head - a.heads : 0;
    weight[i] = load_pairs<kPairs>((is_q ? a.q_norm : a.k_norm) + own * kWidth + first);
  }
  let_next_begin();
  wait_for_previous();
  const In* row = products_of<In>(a) + (t * (turned + a.kv_heads) + begin) * kWidth + first;
#pragma unroll
  for (int i = 0; i < kHeadsEach; ++i) {
    if (i < count) x[i] = load_pairs<kPairs>(row + i * kWidth);
  }
  float q_scale = 1, k_scale = 1;
  if (full) {
#pragma unroll
    for (int i = 0; i < kHeadsEach; ++i) {
      if (i < count) squares[begin + i][lane] = squares_of(x[i]);
    }
    __syncthreads();
    if (begin < a.heads) q_scale = heads_scale(squares, 0, a.heads, kWidth, a.eps);
    if (begin + count > a.heads) k_scale = heads_scale(squares, a.heads, turned, kWidth, a.eps);
  }
  const int64_t block = slot / a.block_tokens, offset = slot % a.block_tokens;
#pragma unroll
  for (int i = 0; i < kHeadsEach; ++i) {
    const int head = begin + i;
    if (i >= count) break;
    const bool is_q = head < a.heads, is_v = head >= turned;
    float scale = is_q ? q_scale : k_scale;
    if (a.norm == QkNormKind::per_head) {
      scale = rsqrtf(warp_sum(squares_of(x[i])) / kWidth + a.eps);
    }
    finish_head(a, x[i], scale, weight[i], turn, is_v);
    bf16* to = static_cast<bf16*>(a.q) + (t * a.heads + head) * kWidth;
    if (!is_q) {
      const int g = is_v ? head - turned : head - a.heads;
      to = static_cast<bf16*>(is_v ? a.v_cache : a.k_cache) +
           ((block * a.kv_heads + g) * a.block_tokens + offset) * kWidth;
    }
    store_run<kPairs>(x[i].low, to + first);
    store_run<kPairs>(x[i].high, to + kHalf + first);
  }
}

template <int kPairs>
bool launch_token(const PrepareHeads& args, StreamHandle stream) {
  const int heads = args.heads + 2 * args.kv_heads;
  if (heads > most_heads(kPairs)) return false;
  launch_chained(args.qkv_bf16 != nullptr ? prepare_token_kernel<kPairs, bf16>
                                          : prepare_token_kernel<kPairs, float>,
                 dim3(grid_of(args.tokens, 1)), grid_of(heads, kHeadsEach) * kWarp, 0, stream,
                 args);
  return true;
}

bool launch_by_token(const PrepareHeads& args, StreamHandle stream) {
  if (args.dtype != DType::bf16 || args.rotary_dim != args.head_dim) return false;
  return args.head_dim == 64    ? launch_token<1>(args, stream)
         : args.head_dim == 128 ? launch_token<2>(args, stream)
         : args.head_dim == 256 ? launch_token<4>(args, stream)
                                : false;
}

}  // namespace

void prepare_heads(const PrepareHeads& args, StreamHandle stream) noexcept {
  if (args.tokens == 0 || launch_by_token(args, stream)) return;
  const dim3 grid(grid_of(args.heads + 2 * args.kv_heads, kHeadWarps), grid_of(args.tokens, 1));
  launch_chained(args.dtype == DType::f32   ? prepare_kernel<float, float>
                 : args.qkv_bf16 == nullptr ? prepare_kernel<bf16, float>
                                            : prepare_kernel<bf16, bf16>,
                 grid, kHeadWarps * kWarp, 0, stream, args);
}

}  // namespace switchyard::cuda
