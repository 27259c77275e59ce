// SPDX-License-Identifier: Apache-2.0
#include "moe/route/expert_choice.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "moe/route/rows.h"

namespace switchyard::moe {
namespace {

constexpr float kNotTaken = -1;  // below every score

// weight[t, e] becomes the score, kNotTaken in rows that are unusable. Returns their number.
int64_t form_scores(const RouterSpec& spec, const SelectInput& in, float* score,
                    const Stream& stream) {
  const int num_experts = spec.num_experts;
  std::atomic<int64_t> bad{0};
  stream.pool().for_range(in.tokens, 1 + kGrainLogits / num_experts,
                          [&](int64_t begin, int64_t end, int) {
                            for (int64_t t = begin; t < end; ++t) {
                              const float* logits = in.logits + t * num_experts;
                              float* row = score + t * num_experts;
                              if (unusable(logits, num_experts)) {
                                std::fill_n(row, num_experts, kNotTaken);
                                bad.fetch_add(1, std::memory_order_relaxed);
                                continue;
                              }
                              const float highest = *std::max_element(logits, logits + num_experts);
                              float sum = 0;
                              for (int e = 0; e < num_experts; ++e)
                                sum += row[e] = std::exp(logits[e] - highest);
                              for (int e = 0; e < num_experts; ++e) row[e] /= sum;
                            }
                          });
  return bad.load();
}

// Marks in column e what the expert does not take. `order` is room for T numbers.
void take_column(int num_experts, int64_t tokens, int64_t capacity, float* column, int32_t* order) {
  const auto before = [&](int32_t a, int32_t b) {
    const float left = column[int64_t{a} * num_experts], right = column[int64_t{b} * num_experts];
    return left != right ? left > right : a < b;
  };
  std::iota(order, order + tokens, 0);
  if (capacity < tokens) std::nth_element(order, order + capacity, order + tokens, before);
  for (int64_t i = capacity; i < tokens; ++i) column[int64_t{order[i]} * num_experts] = kNotTaken;
}

// The row's picks by falling weight, equal ones by the lower expert, then -1.
void gather_row(int num_experts, float scale, int32_t* expert, float* weight) {
  float score[kMaxExperts];
  std::copy_n(weight, num_experts, score);
  int count = 0;
  for (int e = 0; e < num_experts; ++e) {
    if (score[e] != kNotTaken) expert[count++] = e;
  }
  std::sort(expert, expert + count,
            [&](int a, int b) { return score[a] != score[b] ? score[a] > score[b] : a < b; });
  for (int i = 0; i < num_experts; ++i) {
    if (i >= count) expert[i] = -1;
    weight[i] = i < count ? score[expert[i]] * scale : 0;
  }
}

}  // namespace

Status check_expert_choice(const RouterSpec& spec) {
  SWITCHYARD_TRY(spec.check());
  if (!spec.trained_across_tokens) {
    return fail(Code::unsupported,
                "router: expert_choice lets the picks of a token depend on the tokens after it, "
                "which a model that writes token by token cannot see; run a model whose "
                "configuration says that it was trained so (trained_across_tokens)");
  }
  if (spec.score != Score::softmax || spec.weigh != Weigh::raw) {
    return fail(Code::unsupported, "router: expert_choice weighs by the softmax score, raw");
  }
  if (spec.selection_bias || spec.num_groups > 1 || spec.max_devices > 0 || spec.noise != 0 ||
      spec.jitter != 0 || spec.random_second || spec.capacity_factor != 0) {
    return fail(Code::unsupported,
                "router: expert_choice knows no selection bias, groups, device limit, noise, "
                "jitter, random second expert or further capacity");
  }
  return {};
}

int expert_choice_columns(const RouterSpec& spec) { return spec.num_experts; }

int64_t expert_choice_capacity(const RouterSpec& spec, int64_t tokens) noexcept {
  const int64_t experts = spec.num_experts;
  return std::min(tokens, (tokens * spec.top_k + experts - 1) / experts);
}

int64_t expert_choice(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                      const Stream& stream) {
  const int num_experts = spec.num_experts;
  const int64_t tokens = in.tokens, capacity = expert_choice_capacity(spec, tokens);
  if (tokens == 0) return 0;
  const int64_t bad = form_scores(spec, in, out.weight, stream);
  // Until the rows are gathered, out.expert is room for one order of the tokens per expert.
  stream.pool().for_each(num_experts, [&](int64_t e, int) {
    take_column(num_experts, tokens, capacity, out.weight + e, out.expert + e * tokens);
  });
  stream.pool().for_range(tokens, 1 + kGrainLogits / num_experts,
                          [&](int64_t begin, int64_t end, int) {
                            for (int64_t t = begin; t < end; ++t) {
                              gather_row(num_experts, spec.scale, out.expert + t * num_experts,
                                         out.weight + t * num_experts);
                            }
                          });
  return bad;
}

}  // namespace switchyard::moe
