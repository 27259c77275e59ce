// SPDX-License-Identifier: Apache-2.0
// Picks of one token in the persistent step.
#pragma once
#include "kernels/cuda/persistent_dense.cuh"

namespace switchyard::cuda::persistent {

// ---- picks. Only rules without groups and powers come here: what is executed must stay small, as every layer runs through all of
// the kernel's code, and instructions that are no longer in the multiprocessor's cache come from the L2.

__device__ __forceinline__ RouteRule plain_rule(RouteRule rule) {
  rule.num_groups = rule.top_groups = 1;
  rule.group_score = RouteRule::GroupScore::max;
  rule.norm_order = 1;
  return rule;
}
inline bool is_plain(const RouteRule& rule) {
  return rule.top_groups >= rule.num_groups && rule.norm_order == 1;
}

__device__ __forceinline__ Pick plain_picks(const RouteRule& rule, const float* logits, int lane) {
  if (rule.experts <= 128) return choose_experts<4>(plain_rule(rule), logits, nullptr, lane);
  return choose_experts<8>(plain_rule(rule), logits, nullptr, lane);
}

}  // namespace switchyard::cuda::persistent
