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

/// Which share of which expert's logit a thread adds up, and the gate's values for it. The gate is [D, E]: a warp reads values that follow
/// each other. As [E, D], each would be in a line of its own, more lines than L1 has room for: threads waited 2600 cycles to ask.
class GateShare {
  static constexpr int kAhead = 4;

 public:
  /// Reads the gate's values, long before they are needed.
  __device__ __forceinline__ GateShare(const Plan& plan, const float* gate, int rows, int thread)
      : experts_(plan.shape.rule.experts),
        shares_(kConsumerThreads >> plan.expert_bits),
        expert_(thread & ((1 << plan.expert_bits) - 1)),
        first_(thread >> plan.expert_bits),
        rows_(expert_ < experts_ ? rows : 0),
        from_(gate + expert_) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first_ + i * shares_;
      ahead_[i] = row < rows_ ? value(plan, row) : 0.0f;
    }
  }
  /// This thread's share of this block's part of the expert's logit.
  __device__ __forceinline__ float part(const Plan& plan, const float* weighted) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first_ + i * shares_;
      if (row < rows_) sum = fmaf(ahead_[i], weighted[row], sum);
    }
#pragma unroll 1
    for (int row = first_ + kAhead * shares_; row < rows_; row += shares_) {
      sum = fmaf(value(plan, row), weighted[row], sum);
    }
    return sum;
  }

 private:
  __device__ __forceinline__ float value(const Plan& plan, int row) const {
    return __ldg(from_ + int64_t{plan.output.row(row)} * experts_);
  }

  int experts_, shares_, expert_, first_, rows_;
  const float* from_;
  float ahead_[kAhead];
};

/// The sum of the shares of expert `expert`, which all threads have left in their turn.
__device__ __forceinline__ float sum_gate_shares(const Plan& plan, const float* shares,
                                                 int expert) {
  float sum = 0;
#pragma unroll 4
  for (int at = expert; at < kConsumerThreads; at += 1 << plan.expert_bits) sum += shares[at];
  return sum;
}

// ---- picks: every 32 experts have a warp, which ranks them among themselves; the best of all warps are ranked once more

inline constexpr uint32_t kNoExpert = 1;  // a key below that of every number, and not 0

/// How many of the keys come before the one at `at`, which is `own`: those above it, and equal ones in front of it.
__device__ __forceinline__ int num_before(const uint32_t* keys, int quads, uint32_t own, int at) {
  int before[4] = {};
#pragma unroll 4
  for (int i = 0; i < quads; ++i) {
    const uint4 key = reinterpret_cast<const uint4*>(keys)[i];
    const uint32_t most = i < at / 4 ? own - 1 : own;
    before[0] += key.x > most;
    before[1] += key.y > most;
    before[2] += key.z > most;
    before[3] += key.w > most;
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) before[i] += i < at % 4 && keys[at / 4 * 4 + i] == own;
  return (before[0] + before[1]) + (before[2] + before[3]);
}

/// The warp of these 32 experts: waits for the tallies of all blocks, and leaves the logits, without the norm's scale, and its first
/// experts. False if a logit is no number.
__device__ __forceinline__ bool bring_logits(const uint64_t* tallies, const RouteRule& rule,
                                             int expert, float* logits, Candidates& to) {
  const int blocks = static_cast<int>(gridDim.x), lane = expert % 32;
  const bool exists = expert < rule.experts;
  uint64_t word = 0;
  do {
    if (exists) word = read_tagged(tallies + tally_at(expert));
  } while (!__all_sync(kAllLanes, !exists || adders_of(word) == blocks));
  const float logit = sum_of(word);
  const uint32_t own = exists ? order_key(logit) : kNoExpert;
  uint32_t* const keys = to.warp_key[expert / 32];
  keys[lane] = own;
  if (exists) logits[expert] = logit;
  __syncwarp();
  const int before = num_before(keys, 8, own, lane);
  if (before < to.of_warp(rule)) {
    const int at = expert / 32 * to.of_warp(rule) + before;
    to.key[at] = own;
    to.expert[at] = static_cast<uint16_t>(expert);
  }
  return !exists || !isnan(logit);
}

/// A thread's pick: the `rank`th from the highest on, equal ones by rising expert; none from K on. If not usable: experts 0 to K - 1.
struct Pick {
  int rank, expert;
};
__device__ __forceinline__ Pick pick_of(const RouteRule& rule, const Candidates& from, bool usable,
                                        int thread) {
  if (!usable) return {thread, thread};
  const int count = Candidates::count(rule);
  if (thread >= count) return {rule.top_k, 0};
  return {num_before(from.key, count / 4, from.key[thread], thread), from.expert[thread]};
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
