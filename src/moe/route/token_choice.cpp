// SPDX-License-Identifier: Apache-2.0
#include "moe/route/token_choice.h"

#include <cmath>
#include <limits>

namespace switchyard::moe {
namespace {

// The K largest of values[0, count), by falling value; equal values keep the lower index first
// because a later equal value never displaces an earlier one.
void top_k(const float* values, int count, int k, int32_t* index) {
  int filled = 0;
  for (int e = 0; e < count; ++e) {
    if (filled == k && !(values[e] > values[index[k - 1]])) continue;
    int at = filled < k ? filled++ : k - 1;
    for (; at > 0 && values[e] > values[index[at - 1]]; --at) index[at] = index[at - 1];
    index[at] = e;
  }
}

// Sum over all experts of exp(logit - highest), in ascending order.
float exp_sum(const float* logits, int count, float highest) {
  float sum = 0;
  for (int e = 0; e < count; ++e) sum += std::exp(logits[e] - highest);
  return sum;
}

// NaN anywhere, or +inf: no score can be formed. (-inf alone is a masked expert.)
bool unusable(const float* logits, int count) {
  bool found = false;
  float highest = -std::numeric_limits<float>::infinity();
  for (int e = 0; e < count; ++e) {
    found |= std::isnan(logits[e]);
    highest = logits[e] > highest ? logits[e] : highest;
  }
  return found || !std::isfinite(highest);
}

// softmax is monotone, so the picks are those of the logits; only K scores are ever needed.
void choose(const RouterSpec& spec, const float* logits, int32_t* expert, float* weight) {
  const int num_experts = spec.num_experts, k = spec.top_k;
  if (unusable(logits, num_experts)) {
    for (int i = 0; i < k; ++i) {
      expert[i] = i;
      weight[i] = 0;
    }
    return;
  }
  top_k(logits, num_experts, k, expert);
  const float highest = logits[expert[0]];
  float picked = 0;
  for (int i = 0; i < k; ++i) {
    weight[i] = std::exp(logits[expert[i]] - highest);
    picked += weight[i];
  }
  float divisor = picked;  // softmax_after_top_k, which equals renormalize without an epsilon
  if (spec.weigh == Weigh::raw) {
    divisor = exp_sum(logits, num_experts, highest);
  } else if (spec.weigh == Weigh::renormalize && spec.renormalize_epsilon != 0) {
    const float all = exp_sum(logits, num_experts, highest);
    divisor = all * (picked / all + spec.renormalize_epsilon);
  }
  for (int i = 0; i < k; ++i) weight[i] = weight[i] / divisor * spec.scale;
}

}  // namespace

Status check_token_choice(const RouterSpec& spec) {
  SWITCHYARD_TRY(spec.check());
  const auto refuse = [](const char* what) {
    return fail(Code::unsupported, "router: token_choice cannot do {} yet", what);
  };
  if (spec.score != Score::softmax) return refuse("scores other than softmax");
  if (spec.selection_bias) return refuse("a selection bias");
  if (spec.noise != 0) return refuse("noise");
  if (spec.num_groups > 1 || spec.max_devices > 0) return refuse("group or device limits");
  return {};
}

void token_choice(const RouterSpec& spec, const float* logits, int64_t tokens, int32_t* expert,
                  float* weight, const Stream& stream) {
  // About 16 k logits are worth waking a thread for.
  const int64_t grain = 1 + 16384 / spec.num_experts;
  stream.pool().for_range(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      choose(spec, logits + t * spec.num_experts, expert + t * spec.top_k, weight + t * spec.top_k);
    }
  });
}

}  // namespace switchyard::moe
