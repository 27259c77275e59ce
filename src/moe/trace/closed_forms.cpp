// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace switchyard::moe {
namespace {

/// P(X <= x) of a Binomial(n, p), for x = 0, 1, 2 ... in turn.
class BinomialCdf {
 public:
  BinomialCdf(int64_t n, double p) : n_(n), p_(std::clamp(p, 0.0, 1.0)) {}

  /// The value at the next x. Terms come from their logarithms: (1 - p)^n underflows long before
  /// the distribution's bulk.
  double next() {
    const auto x = static_cast<double>(x_++), n = static_cast<double>(n_);
    if (p_ <= 0 || x >= n) return 1;
    if (p_ >= 1) return 0;
    const double log_term = std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                            x * std::log(p_) + (n - x) * std::log1p(-p_);
    sum_ += std::exp(log_term);
    return std::min(sum_, 1.0);
  }

 private:
  int64_t n_, x_ = 0;
  double p_, sum_ = 0;
};

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

double expected_touched(std::span<const double> pi, int64_t batch) {
  double touched = 0;
  for (const double p : pi) {
    const double none = std::pow(1 - std::clamp(p, 0.0, 1.0), static_cast<double>(batch));
    touched += 1 - none;
  }
  return touched;
}

double expected_imbalance(std::span<const double> pi, int64_t batch) {
  const double top_k = std::accumulate(pi.begin(), pi.end(), 0.0);
  if (top_k <= 0 || batch <= 0) return 0;
  std::vector<BinomialCdf> experts;
  for (const double p : pi) experts.emplace_back(batch, p);
  double hottest = 0;
  for (int64_t x = 0; x < batch; ++x) {
    double all_below = 1;
    for (BinomialCdf& expert : experts) all_below *= expert.next();
    const double above = 1 - all_below;
    hottest += above;
    if (above < 1e-12) break;  // the rest of the tail is below what is shown
  }
  return hottest * static_cast<double>(pi.size()) / (top_k * static_cast<double>(batch));
}

double normal_maximum(int count) {
  // The mean of a variable is the integral of its tail above 0 less that of its distribution below.
  constexpr double kEdge = 9, kStep = 1.0 / 512;
  double sum = 0;
  for (double x = kStep / 2; x < kEdge; x += kStep)
    sum += 1 - std::pow(normal_cdf(x), count) - std::pow(normal_cdf(-x), count);
  return sum * kStep;
}

double uniform_imbalance(int num_experts, int top_k, int64_t batch) {
  const double e = num_experts, k = top_k, b = static_cast<double>(batch);
  if (num_experts < 2 || batch <= 0) return 1;
  return 1 + normal_maximum(num_experts) * std::sqrt((1 - k / e) * e / (k * b) * e / (e - 1));
}

double imbalance_floor(std::span<const double> pi) {
  const double top_k = std::accumulate(pi.begin(), pi.end(), 0.0);
  if (top_k <= 0) return 0;
  return *std::max_element(pi.begin(), pi.end()) * static_cast<double>(pi.size()) / top_k;
}

}  // namespace switchyard::moe
