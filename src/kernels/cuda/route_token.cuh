// SPDX-License-Identifier: Apache-2.0
// The picks of one token, made by one warp. The rule is that of moe/route/token_choice.
//
//   lane l holds the experts l, l + 32, l + 64, ...; the best of all is two warp reductions over integer keys in the
//   order of floats (the value, then the lower index), K times over.
//   cost  about 60 cycles a pick, and one load of E logits
#pragma once
#include "kernels/cuda/primitives.cuh"
#include "kernels/ops/moe_route.h"

namespace switchyard::cuda {

inline constexpr uint32_t kTaken = 0;  ///< a key below that of every number
inline constexpr unsigned kNoIndex = 0x7fffffffu;

/// Lane k < K holds pick k; the rest is the same in all lanes.
struct Pick {
  int expert = -1;
  bool usable = true;
  float highest = 0;  ///< logit
  float all = 1;      ///< the sum of all experts' scores, where the rule needs it
};

/// The highest key of the warp and the lowest index that has it.
template <int kPerLane>
__device__ __forceinline__ uint32_t warp_best(const uint32_t (&key)[kPerLane], int lane,
                                              unsigned& index) {
  uint32_t best = key[0];
  unsigned own = 0;
#pragma unroll
  for (int i = 1; i < kPerLane; ++i) {
    if (key[i] > best) {
      best = key[i];
      own = i;
    }
  }
  own = own * 32 + lane;
  const uint32_t highest = __reduce_max_sync(kAllLanes, best);
  index = __reduce_min_sync(kAllLanes, best == highest ? own : kNoIndex);
  return highest;
}

/// The experts of a lane by falling key, equal keys by rising index, so that each pick looks at one a lane.
template <int kPerLane>
class SortedLane {
 public:
  SortedLane() = default;
  __device__ __forceinline__ explicit SortedLane(const uint32_t (&key)[kPerLane]) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      key_[i] = key[i];
      index_[i] = i;
#pragma unroll
      for (int j = i; j > 0; --j) {  // insertion: an equal key stays behind
        const bool swap = key_[j] > key_[j - 1];
        const uint32_t high = swap ? key_[j] : key_[j - 1], low = swap ? key_[j - 1] : key_[j];
        const int high_at = swap ? index_[j] : index_[j - 1];
        const int low_at = swap ? index_[j - 1] : index_[j];
        key_[j - 1] = high;
        key_[j] = low;
        index_[j - 1] = high_at;
        index_[j] = low_at;
      }
    }
  }
  /// The best expert of the warp, which is then gone.
  __device__ __forceinline__ unsigned take_best(int lane) {
    const uint32_t highest = __reduce_max_sync(kAllLanes, key_[0]);
    const unsigned own = index_[0] * 32 + lane;
    const unsigned best = __reduce_min_sync(kAllLanes, key_[0] == highest ? own : kNoIndex);
    if (own == best) {
#pragma unroll
      for (int i = 0; i + 1 < kPerLane; ++i) {
        key_[i] = key_[i + 1];
        index_[i] = index_[i + 1];
      }
      key_[kPerLane - 1] = kTaken;
    }
    return best;
  }

 private:
  uint32_t key_[kPerLane];
  int index_[kPerLane];
};

__device__ __forceinline__ float expert_score(RouteRule::Score score, float logit, float highest) {
  switch (score) {
    case RouteRule::Score::softmax:
      return expf(logit - highest);
    case RouteRule::Score::sigmoid:
      return 1.0f / (1.0f + expf(-logit));
    case RouteRule::Score::sqrt_softplus:
      return sqrtf(fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit))));
  }
  return 0;
}

/// The score of a group, from the keys of its experts: its best, or the sum of its two best.
template <int kPerLane>
__device__ __forceinline__ float group_score(const RouteRule& rule, const uint32_t (&key)[kPerLane],
                                             int group, int lane) {
  const int size = rule.experts / rule.num_groups;
  uint32_t own[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) own[i] = (i * 32 + lane) / size == group ? key[i] : kTaken;
  unsigned index;
  const float best = key_value(warp_best(own, lane, index));
  if (rule.group_score == RouteRule::GroupScore::max) return best;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) own[i] = i * 32 + lane == index ? kTaken : own[i];
  const uint32_t second = warp_best(own, lane, index);
  return second == kTaken ? -INFINITY : best + key_value(second);
}

/// Takes out the experts of all but the best groups; ties go to the lower group.
template <int kPerLane>
__device__ __forceinline__ void keep_best_groups(const RouteRule& rule, uint32_t (&key)[kPerLane],
                                                 int lane) {
  uint32_t mine[1] = {kTaken};
  for (int group = 0; group < rule.num_groups; ++group) {
    const uint32_t score = order_key(group_score(rule, key, group, lane));
    if (lane == group) mine[0] = score;
  }
  uint32_t kept = 0;
  for (int i = 0; i < rule.top_groups; ++i) {
    unsigned group;
    warp_best(mine, lane, group);
    kept |= 1u << group;
    if (lane == group) mine[0] = kTaken;
  }
  const int size = rule.experts / rule.num_groups;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + lane;
    if (expert < rule.experts && !(kept >> (expert / size) & 1)) key[i] = kTaken;
  }
}

/// Whether the scores must be formed to choose: else they would only repeat the order of the logits.
__device__ __forceinline__ bool chosen_by_score(const RouteRule& rule, const float* bias) {
  return bias != nullptr ||
         (rule.num_groups > 1 && rule.group_score == RouteRule::GroupScore::sum_top_2);
}

/// The picks of a token one by one, best first. `logits` and `bias` (or null) have E values; kPerLane * 32 >= E.
template <int kPerLane>
class Chooser {
 public:
  __device__ __forceinline__ Chooser(const RouteRule& rule, const float* logits, const float* bias,
                                     int lane) {
    uint32_t key[kPerLane];
    find_keys(rule, logits, bias, lane, key);
    sorted_ = SortedLane<kPerLane>(key);
  }
  /// The next expert, the same in all lanes.
  __device__ __forceinline__ int next(int lane) {
    const int best = static_cast<int>(sorted_.take_best(lane));
    return pick_.usable ? best : taken_++;
  }
  /// What is known of all picks.
  __device__ __forceinline__ const Pick& common() const { return pick_; }

 private:
  __device__ __forceinline__ void find_keys(const RouteRule& rule, const float* logits,
                                            const float* bias, int lane,
                                            uint32_t (&key)[kPerLane]) {
    float logit[kPerLane];
    bool unusable = false;
    float own_highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = i * 32 + lane;
      logit[i] = expert < rule.experts ? logits[expert] : -INFINITY;
      unusable |= isnan(logit[i]);
      own_highest = fmaxf(own_highest, logit[i]);
    }
    const float highest = key_value(__reduce_max_sync(kAllLanes, order_key(own_highest)));
    pick_.highest = highest;
    pick_.usable = !__any_sync(kAllLanes, unusable) && isfinite(highest);
    const bool by_score = chosen_by_score(rule, bias);
    if (rule.score == RouteRule::Score::softmax &&
        (by_score || rule.weigh == RouteRule::Weigh::raw || rule.epsilon != 0 ||
         rule.minimum != 0)) {
      float own_sum = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) own_sum += expf(logit[i] - highest);
      pick_.all = warp_sum(own_sum);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = i * 32 + lane;
      float choice = logit[i];
      if (by_score) choice = expert_score(rule.score, logit[i], highest) / pick_.all;
      if (bias != nullptr && expert < rule.experts) {
        choice += bias[expert];
        if (isnan(choice)) choice = -INFINITY;
      }
      key[i] = expert < rule.experts ? order_key(choice) : kTaken;
    }
    if (rule.top_groups < rule.num_groups) keep_best_groups(rule, key, lane);
  }

  SortedLane<kPerLane> sorted_;
  Pick pick_;
  int taken_ = 0;
};

/// All picks of a token, pick k in lane k.
template <int kPerLane>
__device__ __forceinline__ Pick choose_experts(const RouteRule& rule, const float* logits,
                                               const float* bias, int lane) {
  Chooser<kPerLane> chooser(rule, logits, bias, lane);
  Pick pick = chooser.common();
  if (!pick.usable) {
    pick.expert = lane;
    return pick;
  }
#pragma unroll 1
  for (int k = 0; k < rule.top_k; ++k) {
    const int best = chooser.next(lane);
    if (lane == k) pick.expert = best;
  }
  return pick;
}

/// Rules without groups and powers, and that choose by logits, said so that the compiler sees it: a layer runs once through the code for its picks, and what is
/// not there need not come from the L2.
inline bool is_flat(const RouteRule& rule) {
  const bool by_score = rule.num_groups > 1 && rule.group_score == RouteRule::GroupScore::sum_top_2;
  return rule.top_groups >= rule.num_groups && rule.norm_order == 1 && !by_score;
}
__device__ __forceinline__ RouteRule flat_rule(RouteRule rule) {
  rule.num_groups = rule.top_groups = 1;
  rule.group_score = RouteRule::GroupScore::max;
  rule.norm_order = 1;
  return rule;
}

/// The pick of lane k that routing.expert holds, and its weight: routed elsewhere.
__device__ __forceinline__ Pick given_pick(const RouteRule& rule, const DeviceRouting& routing,
                                           int64_t token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Pick pick;
  if (lane < rule.top_k) pick.expert = routing.expert[token * rule.top_k + lane];
  return pick;
}
__device__ __forceinline__ float given_weight(const RouteRule& rule, const DeviceRouting& routing,
                                              int64_t token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return lane < rule.top_k ? routing.weight[token * rule.top_k + lane] : 0;
}

/// The length of the picks' scores, one a lane, by the rule's norm; powers of ratios cannot overflow.
__device__ __forceinline__ float norm_of(const RouteRule& rule, float score) {
  float sum = 0, largest = 0;
  for (int k = 0; k < rule.top_k; ++k) {
    const float other = __shfl_sync(kAllLanes, score, k);
    sum += other;
    largest = fmaxf(largest, other);
  }
  const bool by_sum = rule.norm_order == 1 || rule.weigh != RouteRule::Weigh::renormalize;
  if (by_sum || largest == 0) return sum;
  const float power = powf(score / largest, rule.norm_order);
  float powers = 0;
  for (int k = 0; k < rule.top_k; ++k) powers += __shfl_sync(kAllLanes, power, k);
  return largest * powf(powers, 1 / rule.norm_order);
}

/// The weight of lane k's pick; 0 for an unusable token.
__device__ __forceinline__ float pick_weight(const RouteRule& rule, const float* logits,
                                             const Pick& pick, int lane) {
  if (!pick.usable) return 0;
  const float score =
      lane < rule.top_k ? expert_score(rule.score, logits[pick.expert], pick.highest) : 0.0f;
  float divisor = norm_of(rule, score);
  if (rule.weigh == RouteRule::Weigh::raw) {
    divisor = pick.all;
  } else if (rule.epsilon != 0 || rule.minimum != 0) {
    divisor = pick.all * fmaxf(divisor / pick.all + rule.epsilon, rule.minimum);
  }
  return divisor == 0 ? 0 : score / divisor * rule.scale;
}

}  // namespace switchyard::cuda
