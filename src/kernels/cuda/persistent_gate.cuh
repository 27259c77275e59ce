// SPDX-License-Identifier: Apache-2.0
// The gate of the persistent step, and the picks of its one token.
//
// A block has some rows of the residual stream, from the output product, so it adds its part of every expert's logit: in one tally an
// expert, from which every block makes the picks by itself. They need no norm, as its scale is one for all experts; the weights do,
// and are made while the experts are read.
#pragma once
#include "kernels/cuda/persistent_rows.cuh"

namespace switchyard::cuda::persistent {

// Only rules without groups, powers and rare scores come here: what is executed must stay small, as every layer runs through all of the
// kernel's code, and instructions that are no longer in the multiprocessor's cache come from the L2.
inline bool is_plain(const RouteRule& rule) {
  return is_flat(rule) && rule.score != RouteRule::Score::sqrt_softplus;
}

/// Which share of which expert's logit a thread adds up, and the gate's values for it.
class GateShare {
  static constexpr int kAhead = 4;

 public:
  /// Reads the gate's values, long before they are needed.
  __device__ __forceinline__ GateShare(const Plan& plan, const float* gate, int64_t width, int rows,
                                       int thread)
      : lanes_(1 << plan.gate_bits), expert_(thread >> plan.gate_bits), rows_(rows) {
    first_ = thread & (lanes_ - 1);
    exists_ = expert_ < plan.shape.rule.experts;
    from_ = gate + (exists_ ? expert_ : 0) * width;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first_ + i * lanes_;
      ahead_[i] = row < rows ? __ldg(from_ + plan.output.row(row)) : 0.0f;
    }
  }
  /// This block's part of the expert's logit, in the first of its lanes.
  __device__ __forceinline__ float part(const Plan& plan, const float* weighted) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first_ + i * lanes_;
      if (row < rows_) sum = fmaf(ahead_[i], weighted[row], sum);
    }
#pragma unroll 1
    for (int row = first_ + kAhead * lanes_; row < rows_; row += lanes_) {
      sum = fmaf(__ldg(from_ + plan.output.row(row)), weighted[row], sum);
    }
#pragma unroll 1
    for (int offset = lanes_ / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    return sum;
  }
  __device__ __forceinline__ bool leads() const { return exists_ && first_ == 0; }
  __device__ __forceinline__ int expert() const { return expert_; }

 private:
  int lanes_, expert_, rows_, first_;
  bool exists_;
  const float* from_;
  float ahead_[kAhead];
};

/// One warp: waits for the tallies of all blocks and brings the logits, without the norm's scale, to `logits`; false if one is no number.
template <int kPerLane>
__device__ __forceinline__ bool load_logits(const uint64_t* tally, int experts, int lane,
                                            float* logits) {
  const int blocks = static_cast<int>(gridDim.x);
  uint64_t word[kPerLane];
  bool there;
  do {
    there = true;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      word[i] = static_cast<uint64_t>(blocks);
      if (i * 32 + lane < experts) word[i] = read_tagged(tally + tally_at(i * 32 + lane));
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) there &= adders_of(word[i]) == blocks;
  } while (!__all_sync(kAllLanes, there));
  bool usable = true;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i * 32 + lane >= experts) break;
    const float logit = sum_of(word[i]);
    usable &= !isnan(logit);
    logits[i * 32 + lane] = logit;
  }
  __syncwarp();
  return __all_sync(kAllLanes, usable);
}

/// One warp: the K highest logits, equal ones by rising expert, in falling order to `picks`. If they are not usable: experts 0 to K - 1.
template <int kPerLane>
__device__ __forceinline__ void choose_highest(const RouteRule& rule, const float* logits,
                                               bool usable, int lane, int* picks) {
  uint32_t key[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + lane;
    key[i] = expert < rule.experts ? order_key(logits[expert]) : kTaken;
  }
  SortedLane<kPerLane> sorted(key);
#pragma unroll 1
  for (int k = 0; k < rule.top_k; ++k) {
    const int best = static_cast<int>(sorted.take_best(lane));
    if (lane == 0) picks[k] = usable ? best : k;
  }
  __syncwarp();
}

__device__ __forceinline__ float score_of(const RouteRule& rule, float logit, float highest) {
  const float e =
      exp2_fast(kLog2e * (rule.score == RouteRule::Score::softmax ? logit - highest : -logit));
  return rule.score == RouteRule::Score::softmax ? e : reciprocal(1 + e);
}

/// One warp: the weights of the picks, from logits that lack `scale`. The rule is pick_weight's of route_token.cuh; only softmax and
/// sigmoid come here.
__device__ __forceinline__ void weigh_picks(const RouteRule& rule, const float* logits, float scale,
                                            bool usable, int lane, const int* picks,
                                            float* weights) {
  float highest = -INFINITY, all = 1;
#pragma unroll 1
  for (int e = lane; e < rule.experts; e += 32) highest = fmaxf(highest, logits[e] * scale);
  highest = warp_max(highest);
  if (rule.score == RouteRule::Score::softmax) {
    all = 0;
#pragma unroll 1
    for (int e = lane; e < rule.experts; e += 32) all += score_of(rule, logits[e] * scale, highest);
    all = warp_sum(all);
  }
  const bool mine = lane < rule.top_k;
  const float score = mine ? score_of(rule, logits[picks[lane]] * scale, highest) : 0;
  float divisor = warp_sum(score);
  if (rule.weigh == RouteRule::Weigh::raw) {
    divisor = all;
  } else if (rule.epsilon != 0 || rule.minimum != 0) {
    divisor = all * fmaxf(divisor / all + rule.epsilon, rule.minimum);
  }
  if (mine) weights[lane] = usable && divisor != 0 ? score * reciprocal(divisor) * rule.scale : 0;
}

}  // namespace switchyard::cuda::persistent
