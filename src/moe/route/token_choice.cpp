// SPDX-License-Identifier: Apache-2.0
#include "moe/route/token_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/route/rows.h"

namespace switchyard::moe {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The groups, or the devices, that picks are limited to.
struct Parts {
  int count, top, size;
  const int32_t* part_of;  // [E]; null: equal runs of `size` experts
  GroupScore score;

  bool limit() const { return top < count; }
  int operator[](int e) const { return part_of != nullptr ? part_of[e] : e / size; }
};

Parts parts_of(const RouterSpec& spec, const int32_t* device_of) {
  if (spec.max_devices > 0) {
    return {spec.num_devices, spec.max_devices, spec.num_experts / spec.num_devices, device_of,
            GroupScore::max};
  }
  return {spec.num_groups, spec.top_groups, spec.num_experts / spec.num_groups, nullptr,
          spec.group_score};
}

// The scores need not be formed to compare experts when they only repeat the order of the logits.
bool chosen_by_logits(const RouterSpec& spec) {
  const bool sums = spec.num_groups > 1 && spec.group_score == GroupScore::sum_top_2;
  return !spec.selection_bias && !sums;
}

// Sum over all experts of exp(logit - highest), in ascending order.
float exp_sum(const float* logits, int count, float highest) {
  float sum = 0;
  for (int e = 0; e < count; ++e) sum += std::exp(logits[e] - highest);
  return sum;
}

// score + bias of all experts.
void form_choice(const RouterSpec& spec, const float* logits, float highest, const float* bias,
                 float* choice) {
  const int num_experts = spec.num_experts;
  const float all = spec.score == Score::softmax ? exp_sum(logits, num_experts, highest) : 1.0f;
  for (int e = 0; e < num_experts; ++e) {
    const float score = score_of(spec.score, logits[e], highest) / all;
    choice[e] = bias != nullptr ? choice_of(score, bias[e]) : score;
  }
}

// Marks the best parts in keep[0, count).
void keep_best(const Parts& parts, const float* choice, int num_experts, bool* keep) {
  float best[kMaxExperts], second[kMaxExperts];
  int32_t order[kMaxExperts];
  std::fill_n(best, parts.count, kLowest);
  std::fill_n(second, parts.count, kLowest);
  for (int e = 0; e < num_experts; ++e) {
    const int p = parts[e];
    second[p] = std::max(second[p], std::min(best[p], choice[e]));
    best[p] = std::max(best[p], choice[e]);
  }
  if (parts.score == GroupScore::sum_top_2) {
    for (int p = 0; p < parts.count; ++p) best[p] += second[p];
  }
  top_k(best, parts.count, parts.top, order);
  std::fill_n(keep, parts.count, false);
  for (int i = 0; i < parts.top; ++i) keep[order[i]] = true;
}

// The K best among the experts of the best parts. Others are left out rather than masked with
// -infinity, which an expert inside can have as well.
void top_k_within(const Parts& parts, const float* choice, int num_experts, int k,
                  int32_t* expert) {
  bool keep[kMaxExperts];
  keep_best(parts, choice, num_experts, keep);
  float value[kMaxExperts];
  int32_t id[kMaxExperts];
  int count = 0;
  for (int e = 0; e < num_experts; ++e) {
    if (!keep[parts[e]]) continue;
    value[count] = choice[e];
    id[count++] = e;
  }
  top_k(value, count, k, expert);
  for (int i = 0; i < k; ++i) expert[i] = id[expert[i]];
}

void weigh(const RouterSpec& spec, const float* logits, float highest, const int32_t* expert,
           float* weight) {
  for (int i = 0; i < spec.top_k; ++i) {
    weight[i] = score_of(spec.score, logits[expert[i]], highest);
  }
  const float sum = weighs_by_sum(spec) ? exp_sum(logits, spec.num_experts, highest) : 1.0f;
  finish_weights(spec, sum, weight);
}

}  // namespace

Status check_token_choice(const RouterSpec& spec) {
  SWITCHYARD_TRY(spec.check());
  const auto refuse = [](const char* what, const char* whose) {
    return fail(Code::unsupported, "router: token_choice has no {}; that is {}", what, whose);
  };
  if (spec.noise != 0) return refuse("noise", "the selector noisy_top_k");
  if (spec.jitter != 0) return refuse("jitter", "the selector sparsemixer");
  if (spec.random_second) return refuse("random second expert", "the selector gshard_top_2");
  return {};
}

int64_t token_choice(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                     const Stream& stream) {
  const Parts parts = parts_of(spec, in.device_of);
  const float* bias = spec.selection_bias ? in.bias : nullptr;
  const bool by_logits = chosen_by_logits(spec);
  SWITCHYARD_CHECK(bias != nullptr || !spec.selection_bias, "a selection bias without values");
  return for_each_row(spec, in, out, stream,
                      [&](int64_t, const float* logits, int32_t* expert, float* weight) {
                        const int num_experts = spec.num_experts;
                        const float highest = *std::max_element(logits, logits + num_experts);
                        float scores[kMaxExperts];
                        if (!by_logits) form_choice(spec, logits, highest, bias, scores);
                        const float* choice = by_logits ? logits : scores;
                        if (parts.limit()) {
                          top_k_within(parts, choice, num_experts, spec.top_k, expert);
                        } else {
                          top_k(choice, num_experts, spec.top_k, expert);
                        }
                        weigh(spec, logits, highest, expert, weight);
                      });
}

}  // namespace switchyard::moe
