// SPDX-License-Identifier: Apache-2.0
// One head of one token between the q, k, v product and attention, by one warp: norm, clip, rope.
// Source: Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#pragma once
#include <type_traits>

#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {

template <int kPairs>
struct Pairs {  // values z and z + half of kPairs neighbouring z
  float low[kPairs], high[kPairs];
};
/// kPairs neighbours of f32 or bf16, as they lie in memory.
template <int kPairs, class T>
struct Run {
  static constexpr int kBytes = kPairs * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<
      kBytes == 2, uint16_t,
      std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 8, uint2, uint4>>>;
  Word word;
  __device__ __forceinline__ void load(const T* from) {
    word = *reinterpret_cast<const Word*>(from);
  }
  __device__ __forceinline__ void values(float (&to)[kPairs]) const {
    const T* value = reinterpret_cast<const T*>(&word);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) to[i] = to_f32(value[i]);
  }
};
template <int kPairs>
__device__ __forceinline__ void load_run(const float* from, float (&to)[kPairs]) {
  Run<kPairs, float> run;
  run.load(from);
  run.values(to);
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
template <int kPairs>
__device__ __forceinline__ float squares_of(const Pairs<kPairs>& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) sum += x.low[i] * x.low[i] + x.high[i] * x.high[i];
  return sum;
}

// The head's norm, clip and turn. `turn` holds cos and sin; v heads have neither norm nor turn.
template <int kPairs>
__device__ __forceinline__ void finish_head(const PrepareHeads& a, Pairs<kPairs>& x, float scale,
                                            const Pairs<kPairs>& weight, const Pairs<kPairs>& turn,
                                            bool is_v) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    float low = x.low[i], high = x.high[i];
    if (!is_v && a.norm != QkNormKind::none) {
      low = low * scale * weight.low[i];
      high = high * scale * weight.high[i];
    }
    if (a.clip > 0) {
      low = fminf(fmaxf(low, -a.clip), a.clip);
      high = fminf(fmaxf(high, -a.clip), a.clip);
    }
    x.low[i] = is_v ? low : low * turn.low[i] - high * turn.high[i];
    x.high[i] = is_v ? high : high * turn.low[i] + low * turn.high[i];
  }
}

// 1 / rms over all heads of a kind, by one warp.
__device__ inline float full_width_scale(const float* x, int64_t width, float eps) {
  const auto* quads = reinterpret_cast<const float4*>(x);
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kWarp; i < width / 4; i += kWarp) sum += squares_of(quads[i]);
  return rsqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

/// A head of 64, 128 or 256 values that is turned as a whole: a lane holds kPairs = Z / 64 neighbours and their partners half a
/// head away, so each value is read once. When made it reads what does not depend on qkv.
template <int kPairs>
class TurnedHead {
 public:
  static constexpr int kHalf = kPairs * kWarp, kWidth = 2 * kHalf;

  /// `head` counts q heads, then k heads, then v heads.
  __device__ __forceinline__ TurnedHead(const PrepareHeads& a, int64_t t, int head)
      : head_(head), is_q_(head < a.heads), is_v_(head >= a.heads + a.kv_heads) {
    if (is_v_) return;
    if (a.norm != QkNormKind::none) {
      const int own = is_q_ ? head : head - a.heads;
      const int skipped = a.norm == QkNormKind::full_width ? own * kWidth : 0;
      weight_ = load_pairs<kPairs>((is_q_ ? a.q_norm : a.k_norm) + skipped + first());
    }
    const int64_t angle = int64_t{a.rope_row[t]} * kHalf + first();
    load_run<kPairs>(a.cos + angle, turn_.low);
    load_run<kPairs>(a.sin + angle, turn_.high);
  }

  /// This lane's first value; its partner is kHalf further on.
  static __device__ __forceinline__ int first() {
    return static_cast<int>(threadIdx.x) % kWarp * kPairs;
  }

  /// This lane's values of the head, whose norm is `scale`.
  __device__ __forceinline__ void finish(const PrepareHeads& a, Pairs<kPairs>& x,
                                         float scale) const {
    finish_head(a, x, scale, weight_, turn_, is_v_);
  }

  /// From the token's row of qkv.
  __device__ __forceinline__ Pairs<kPairs> values(const PrepareHeads& a, const float* row) const {
    Pairs<kPairs> x = load_pairs<kPairs>(row + head_ * kWidth + first());
    const bool normed = !is_v_ && a.norm != QkNormKind::none;
    finish(a, x, normed ? scale_of(a, row, x) : 1.0f);
    return x;
  }

  /// Where the head's result belongs: q, or the row of a cache.
  __device__ __forceinline__ bf16* target(const PrepareHeads& a, int64_t t, int64_t slot) const {
    if (is_q_) return static_cast<bf16*>(a.q) + (t * a.heads + head_) * kWidth;
    const int64_t block = slot / a.block_tokens, offset = slot % a.block_tokens;
    const int g = is_v_ ? head_ - a.heads - a.kv_heads : head_ - a.heads;
    return static_cast<bf16*>(is_v_ ? a.v_cache : a.k_cache) +
           ((block * a.kv_heads + g) * a.block_tokens + offset) * kWidth;
  }
  static __device__ __forceinline__ void store(const Pairs<kPairs>& x, bf16* to) {
    store_run<kPairs>(x.low, to + first());
    store_run<kPairs>(x.high, to + kHalf + first());
  }

 private:
  __device__ __forceinline__ float scale_of(const PrepareHeads& a, const float* row,
                                            const Pairs<kPairs>& x) const {
    if (a.norm == QkNormKind::full_width) {
      return full_width_scale(row + (is_q_ ? 0 : a.heads * kWidth),
                              int64_t{is_q_ ? a.heads : a.kv_heads} * kWidth, a.eps);
    }
    return rsqrtf(warp_sum(squares_of(x)) / kWidth + a.eps);
  }

  int head_;
  bool is_q_, is_v_;
  Pairs<kPairs> weight_ = {}, turn_ = {};  // turn_: cos and sin
};

}  // namespace switchyard::cuda
