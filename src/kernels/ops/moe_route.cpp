// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/moe_route.h"

namespace switchyard {

const char* MoeRoute::refusal(const Problem& problem) noexcept {
  const RouteRule& rule = problem.rule;
  if (rule.experts < 1 || rule.experts > kMaxExperts) return "needs 1 to 512 experts";
  if (rule.top_k < 1 || rule.top_k > kMaxTopK || rule.top_k > rule.experts) {
    return "needs 1 to 32 picks a token, and no more than there are experts";
  }
  if (rule.num_groups < 1 || rule.num_groups > 32 || rule.experts % rule.num_groups != 0) {
    return "needs 1 to 32 groups of equal size";
  }
  if (rule.top_groups < 1 || rule.top_groups > rule.num_groups ||
      rule.experts / rule.num_groups * rule.top_groups < rule.top_k) {
    return "the chosen groups hold fewer experts than a token picks";
  }
  return nullptr;
}

int64_t MoeRoute::workspace_bytes(const Problem& problem) noexcept {
  return static_cast<int64_t>(sizeof(int32_t)) * kMaxBlocks * problem.rule.experts;
}

}  // namespace switchyard
