// SPDX-License-Identifier: Apache-2.0
// Before attention in the persistent step: a head's values from the q, k, v product, each as soon as it is there; norm, clip and rope;
// queries and the token's own key and value into shared memory, key and value into the caches.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"
#include "kernels/cuda/step_heads.cuh"

namespace switchyard::cuda::persistent {

inline constexpr int kSideWarps = kConsumers / 2;  // key warps, and value warps
template <int kZ>
inline constexpr int kQueryBytes = kZ * 2 + 16;  // padded against bank conflicts

template <int kZ>
class Heads {
  static constexpr int kPairs = kZ / 64;

 public:
  /// `head` counts q, then k, then v heads; below 0: none, whose values are 0.
  __device__ Heads(const PersistentStep& step, const PersistentLayer& layer, const Block& block,
                   int head)
      : turned_(spec(step, layer, block), 0, max(head, 0)), head_(head) {}

  /// Waits for the values. `squares`: sums over all q heads and over all k heads, one of each block.
  __device__ __forceinline__ void run(const PersistentStep& step, const uint64_t* qkv,
                                      const uint64_t* squares, uint32_t tag, bf16* to,
                                      bf16* cached) const {
    Pairs<kPairs> x = {};
    if (head_ >= 0) {
      const float sum = read(step, qkv + head_ * kZ + turned_.first(), squares, tag, x);
      PrepareHeads spec;
      spec.norm = step.qk_norm;
      spec.clip = step.clip;
      turned_.finish(spec, x, scale(step, sum, x));
    }
    turned_.store(x, to);
    if (cached != nullptr) turned_.store(x, cached);
  }

 private:
  static __device__ __forceinline__ PrepareHeads spec(const PersistentStep& step,
                                                      const PersistentLayer& layer,
                                                      const Block& block) {
    PrepareHeads heads;
    heads.heads = step.heads;
    heads.kv_heads = step.kv_heads;
    heads.norm = step.qk_norm;
    heads.q_norm = layer.q_norm;
    heads.k_norm = layer.k_norm;
    heads.cos = block.turn[0];
    heads.sin = block.turn[1];
    heads.rope_row = &block.turn_row;
    return heads;
  }

  // The sum of squares over all heads of its kind, if the norm wants it: one number of each block, all on their way at once.
  __device__ __forceinline__ float read(const PersistentStep& step, const uint64_t* from,
                                        const uint64_t* squares, uint32_t tag,
                                        Pairs<kPairs>& x) const {
    constexpr int kEach = 8;
    static_assert(kEach * 32 > kMostAdders);
    const int lane = lane_id();
    const int blocks = wants_squares(step) ? static_cast<int>(gridDim.x) : 0;
    if (head_ >= step.heads) squares += blocks;
    Tagged<kPairs> low, high;
    float sum;
    bool there;
    do {
      there = low.read(from, tag);
      there &= high.read(from + kZ / 2, tag);
      sum = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (i * 32 + lane >= blocks) break;
        Tagged<1> one;
        there &= one.read(squares + i * 32 + lane, tag);
        sum += one.number(0);
      }
    } while (!there);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      x.low[i] = low.number(i);
      x.high[i] = high.number(i);
    }
    __syncwarp();
    return sum;
  }
  __device__ __forceinline__ bool wants_squares(const PersistentStep& step) const {
    return step.qk_norm == QkNormKind::full_width && head_ < step.heads + step.kv_heads;
  }

  // `sum`: this lane's share of all squares.
  __device__ __forceinline__ float scale(const PersistentStep& step, float sum,
                                         const Pairs<kPairs>& x) const {
    if (step.qk_norm == QkNormKind::none || head_ >= step.heads + step.kv_heads) return 1;
    if (step.qk_norm == QkNormKind::per_head) {
      return rsqrtf(warp_sum(squares_of(x)) / kZ + step.eps);
    }
    const int all = head_ < step.heads ? step.heads : step.kv_heads;
    return rsqrtf(warp_sum(sum) / static_cast<float>(all * kZ) + step.eps);
  }

  TurnedHead<kPairs> turned_;
  int head_;
};

}  // namespace switchyard::cuda::persistent
