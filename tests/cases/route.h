// SPDX-License-Identifier: Apache-2.0
// Token choice once more, by sorting: shares nothing with the code that it judges but the formulas. Scores are f32 as
// the router's, so that picks must agree exactly; weights are f64.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/ops/route.h"

namespace switchyard::cases {

struct NaiveRow {
  std::vector<int32_t> expert;
  std::vector<double> weight;
  double divisor = 1;  // of the scores
  bool usable = true;
};

inline double wide(float value) { return static_cast<double>(value); }

/// f32 scores of a row, in the plainest way.
inline std::vector<float> naive_scores(Score score, std::span<const float> z) {
  std::vector<float> s(z.size());
  const float highest = *std::max_element(z.begin(), z.end());
  for (size_t e = 0; e < z.size(); ++e) {
    if (score == Score::softmax) s[e] = std::exp(z[e] - highest);
    if (score == Score::sigmoid) s[e] = 1.0f / (1.0f + std::exp(-z[e]));
    if (score == Score::sqrt_softplus) {
      s[e] = std::sqrt(std::max(z[e], 0.0f) + std::log1p(std::exp(-std::abs(z[e]))));
    }
  }
  if (score != Score::softmax) return s;
  const float sum = std::accumulate(s.begin(), s.end(), 0.0f);
  for (float& value : s) value /= sum;
  return s;
}

/// f64 score of expert e.
inline double exact_score(Score score, std::span<const float> z, size_t e) {
  if (score == Score::sigmoid) return 1 / (1 + std::exp(-wide(z[e])));
  if (score == Score::sqrt_softplus) {
    return std::sqrt(std::max(wide(z[e]), 0.0) + std::log1p(std::exp(-std::abs(wide(z[e])))));
  }
  const double highest = wide(*std::max_element(z.begin(), z.end()));
  double sum = 0;
  for (const float value : z) sum += std::exp(wide(value) - highest);
  return std::exp(wide(z[e]) - highest) / sum;
}

/// Numbers 0 .. values.size() - 1 by falling value, equal ones in order.
inline std::vector<int32_t> by_falling(const std::vector<float>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

/// Whether each expert lies in one of the best groups or on one of the best devices.
inline std::vector<bool> naive_reachable(const RouterSpec& spec, const std::vector<float>& choice,
                                         const int32_t* device_of) {
  const bool devices = spec.max_devices > 0;
  const int parts = devices ? spec.num_devices : spec.num_groups;
  const int top = devices ? spec.max_devices : spec.top_groups;
  const auto part = [&](size_t e) {
    if (devices && device_of != nullptr) return device_of[e];
    return static_cast<int32_t>(e) / (spec.num_experts / parts);
  };
  std::vector<float> score;
  for (int p = 0; p < parts; ++p) {
    std::vector<float> inside;
    for (size_t e = 0; e < choice.size(); ++e) {
      if (part(e) == p) inside.push_back(choice[e]);
    }
    inside.resize(std::max<size_t>(inside.size(), 2), -std::numeric_limits<float>::infinity());
    std::sort(inside.rbegin(), inside.rend());
    const bool sum = !devices && spec.group_score == GroupScore::sum_top_2;
    score.push_back(sum ? inside[0] + inside[1] : inside[0]);
  }
  std::vector<int32_t> best = by_falling(score);
  best.resize(static_cast<size_t>(top));
  std::vector<bool> reachable;
  for (size_t e = 0; e < choice.size(); ++e) {
    reachable.push_back(std::find(best.begin(), best.end(), part(e)) != best.end());
  }
  return reachable;
}

inline void naive_weights(const RouterSpec& spec, std::span<const float> z, NaiveRow& row) {
  for (const int32_t e : row.expert) {
    row.weight.push_back(exact_score(spec.score, z, static_cast<size_t>(e)));
  }
  double& divisor = row.divisor;
  if (spec.weigh != Weigh::raw) {
    double powers = 0;
    for (const double w : row.weight) powers += std::pow(w, wide(spec.norm_order));
    divisor = std::max(std::pow(powers, 1 / wide(spec.norm_order)) + wide(spec.renormalize_epsilon),
                       wide(spec.renormalize_minimum));
  }
  for (double& w : row.weight) w = divisor == 0 ? 0 : w / divisor * wide(spec.scale);
}

/// What the spec says of one row of logits [E]; bias [E] and device_of [E] may be null.
inline NaiveRow naive_token_choice(const RouterSpec& spec, std::span<const float> z,
                                   const float* bias, const int32_t* device_of) {
  NaiveRow row;
  const float highest = *std::max_element(z.begin(), z.end());
  const bool nan = std::any_of(z.begin(), z.end(), [](float v) { return std::isnan(v); });
  if (nan || !std::isfinite(highest)) {
    row.usable = false;
    row.expert.resize(static_cast<size_t>(spec.top_k));
    std::iota(row.expert.begin(), row.expert.end(), 0);
    row.weight.assign(static_cast<size_t>(spec.top_k), 0);
    return row;
  }
  std::vector<float> choice(z.begin(), z.end());
  const bool sums = spec.num_groups > 1 && spec.group_score == GroupScore::sum_top_2;
  if (spec.selection_bias || sums) choice = naive_scores(spec.score, z);
  for (size_t e = 0; spec.selection_bias && e < choice.size(); ++e) {
    choice[e] += bias[e];
    if (std::isnan(choice[e])) choice[e] = -std::numeric_limits<float>::infinity();
  }
  const std::vector<bool> reachable = naive_reachable(spec, choice, device_of);
  for (const int32_t e : by_falling(choice)) {
    const bool full = row.expert.size() == static_cast<size_t>(spec.top_k);
    if (!full && reachable[static_cast<size_t>(e)]) row.expert.push_back(e);
  }
  naive_weights(spec, z, row);
  return row;
}

/// Scores so small that f32 has lost their bits, or all of them.
inline double blurred_below(Score score) { return score == Score::sqrt_softplus ? 2e-19 : 2e-38; }

/// Whether the weights of a row are those of the naive router, up to the rounding of f32.
inline bool weights_agree(const RouterSpec& spec, std::span<const float> z, const NaiveRow& row,
                          const float* weight) {
  double best = 0;
  for (const int32_t e : row.expert) {
    best = std::max(best, exact_score(spec.score, z, static_cast<size_t>(e)));
  }
  // A sum over E f32 numbers in a row errs by up to E half units; the naive one is in f64.
  const double sums = 2e-6 + 4e-8 * spec.num_experts;
  const double highest = z.empty() ? 0 : wide(*std::max_element(z.begin(), z.end()));
  for (size_t i = 0; i < row.weight.size(); ++i) {
    // e^(z - highest): the difference is rounded to f32, by half a unit of its own size.
    const double below = highest - wide(z[static_cast<size_t>(row.expert[i])]);
    const double relative =
        sums + (spec.score == Score::softmax && std::isfinite(below) ? 6e-8 * below : 0);
    const double found = wide(weight[i]), wanted = row.weight[i];
    if (!std::isfinite(found) || found < 0) return false;
    if (row.usable && best < blurred_below(spec.score)) continue;  // nothing to compare
    const double slack = 1e-37 + 10 * blurred_below(spec.score) * wide(spec.scale) / row.divisor;
    if (std::abs(found - wanted) > relative * wanted + slack) return false;
  }
  return true;
}

}  // namespace switchyard::cases
