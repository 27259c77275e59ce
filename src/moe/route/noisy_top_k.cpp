// SPDX-License-Identifier: Apache-2.0
#include "moe/route/noisy_top_k.h"

#include <algorithm>
#include <cmath>

#include "moe/route/draw.h"
#include "moe/route/rows.h"

namespace switchyard::moe {
namespace {

constexpr float kLeastDeviation = 0.01f;

float deviation(const RouterSpec& spec, const float* noise_logits, int e) {
  if (noise_logits == nullptr) return spec.noise;
  const float z = noise_logits[e];
  const float softplus = std::max(z, 0.0f) + std::log1p(std::exp(-std::abs(z)));
  return spec.noise * (softplus + kLeastDeviation);
}

const float* noise_row(const RouterSpec& spec, const SelectInput& in, int64_t t) {
  return in.noise_logits != nullptr ? in.noise_logits + t * spec.num_experts : nullptr;
}

void add_noise(const RouterSpec& spec, const SelectInput& in, int64_t t, const float* logits,
               float* noisy) {
  const float* noise = noise_row(spec, in, t);
  for (int e = 0; e < spec.num_experts; ++e) {
    noisy[e] = logits[e];
    if (spec.noise != 0) noisy[e] += draw_normal(in.random, t, e) * deviation(spec, noise, e);
  }
}

// The chance that a standard normal number is below x.
double normal_below(double x) { return 0.5 * std::erfc(-x * 0.7071067811865476); }

// The chance of each expert to be picked, for one usable row.
void add_row_load(const RouterSpec& spec, const SelectInput& in, int64_t t, const float* logits,
                  std::span<double> load) {
  const int num_experts = spec.num_experts, k = spec.top_k;
  float noisy[kMaxExperts];
  int32_t best[kMaxExperts];
  add_noise(spec, in, t, logits, noisy);
  if (unusable(noisy, num_experts)) return;
  const int ranked = std::min(k + 1, num_experts);
  top_k(noisy, num_experts, ranked, best);
  bool picked[kMaxExperts] = {};
  for (int i = 0; i < k; ++i) picked[best[i]] = true;
  for (int e = 0; e < num_experts; ++e) {
    const float d = deviation(spec, noise_row(spec, in, t), e);
    if (k == num_experts || !(d > 0)) {
      load[e] += picked[e] ? 1 : 0;
      continue;
    }
    const float threshold = noisy[best[picked[e] ? k : k - 1]];
    const double distance = static_cast<double>(logits[e]) - static_cast<double>(threshold);
    if (!std::isnan(distance)) load[e] += normal_below(distance / static_cast<double>(d));
  }
}

}  // namespace

Status check_noisy_top_k(const RouterSpec& spec) {
  SWITCHYARD_TRY(spec.check());
  if (spec.weigh != Weigh::softmax_after_top_k) {
    return fail(Code::unsupported,
                "router: noisy_top_k weighs by softmax over the noisy logits that it keeps, "
                "expected softmax_after_top_k");
  }
  if (spec.num_groups > 1 || spec.max_devices > 0 || spec.jitter != 0 || spec.random_second) {
    return fail(Code::unsupported,
                "router: noisy_top_k knows no groups, device limit, jitter or random second "
                "expert");
  }
  return {};
}

int64_t noisy_top_k(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                    const Stream& stream) {
  std::atomic<int64_t> spoiled{0};
  const int64_t bad = for_each_row(
      spec, in, out, stream, [&](int64_t t, const float* logits, int32_t* expert, float* weight) {
        float noisy[kMaxExperts];
        add_noise(spec, in, t, logits, noisy);
        if (unusable(noisy, spec.num_experts)) {  // a noise logit was
          give_up(spec.top_k, expert, weight);
          spoiled.fetch_add(1, std::memory_order_relaxed);
          return;
        }
        top_k(noisy, spec.num_experts, spec.top_k, expert);
        float sum = 0;
        for (int i = 0; i < spec.top_k; ++i) {
          weight[i] = std::exp(noisy[expert[i]] - noisy[expert[0]]);
          sum += weight[i];
        }
        for (int i = 0; i < spec.top_k; ++i) weight[i] = weight[i] / sum * spec.scale;
      });
  return bad + spoiled.load();
}

void add_importance(const RouterSpec& spec, const SelectOutput& picks, int64_t tokens,
                    std::span<double> importance) noexcept {
  for (int64_t i = 0; i < tokens * spec.top_k; ++i) {
    if (picks.expert[i] >= 0) {
      importance[static_cast<size_t>(picks.expert[i])] += static_cast<double>(picks.weight[i]);
    }
  }
}

void add_smooth_load(const RouterSpec& spec, const SelectInput& in,
                     std::span<double> load) noexcept {
  for (int64_t t = 0; t < in.tokens; ++t) {
    const float* logits = in.logits + t * spec.num_experts;
    if (!unusable(logits, spec.num_experts)) add_row_load(spec, in, t, logits, load);
  }
}

double squared_variation(std::span<const double> values) noexcept {
  if (values.empty()) return 0;
  const auto count = static_cast<double>(values.size());
  double mean = 0, variance = 0;
  for (const double value : values) mean += value / count;
  for (const double value : values) variance += (value - mean) * (value - mean) / count;
  return variance / (mean * mean + 1e-10);
}

}  // namespace switchyard::moe
