// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_route_oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace switchyard::testing {
namespace {

struct HostPicks {
  std::vector<int32_t> expert;
  std::vector<double> weight;
};

double score_of(const RouteRule& rule, double z, double highest) {
  switch (rule.score) {
    case RouteRule::Score::softmax:
      return std::exp(z - highest);
    case RouteRule::Score::sigmoid:
      return 1 / (1 + std::exp(-z));
    case RouteRule::Score::sqrt_softplus:
      return std::sqrt(std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))));
  }
  return 0;
}

// Indices of `values` by falling value, equal ones by rising index.
std::vector<int> ranking(const std::vector<double>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  return order;
}

HostPicks host_picks(const RouteRule& rule, const float* logits, const float* bias) {
  const std::vector<double> z(logits, logits + rule.experts);
  const double highest = *std::max_element(z.begin(), z.end());
  std::vector<double> score(rule.experts), choice(rule.experts);
  for (int e = 0; e < rule.experts; ++e) score[e] = score_of(rule, z[e], highest);
  double all = 1;
  if (rule.score == RouteRule::Score::softmax) {
    all = std::accumulate(score.begin(), score.end(), 0.0);
  }
  for (int e = 0; e < rule.experts; ++e) {
    score[e] /= all;
    choice[e] = score[e] + (bias != nullptr ? double{bias[e]} : 0);
  }
  const int size = rule.experts / rule.num_groups;
  std::vector<double> group(rule.num_groups);
  for (int i = 0; i < rule.num_groups; ++i) {
    std::vector<double> inside(choice.begin() + i * size, choice.begin() + (i + 1) * size);
    std::sort(inside.rbegin(), inside.rend());
    group[i] = inside[0];
    if (rule.group_score == RouteRule::GroupScore::sum_top_2) group[i] += inside[1];
  }
  std::vector<bool> kept(rule.num_groups);
  const std::vector<int> groups = ranking(group);
  for (int i = 0; i < rule.top_groups; ++i) kept[groups[i]] = true;
  HostPicks picks;
  for (const int e : ranking(choice)) {
    if (kept[e / size] && static_cast<int>(picks.expert.size()) < rule.top_k) {
      picks.expert.push_back(e);
      picks.weight.push_back(score[e]);
    }
  }
  const double sum = std::accumulate(picks.weight.begin(), picks.weight.end(), 0.0);
  for (double& weight : picks.weight) {
    if (rule.weigh != RouteRule::Weigh::raw) weight /= sum + double{rule.epsilon};
    weight *= double{rule.scale};
  }
  return picks;
}

}  // namespace

// The order of rows follows from the picks alone.
void expect_rows_follow_picks(const RoutingArrays& routing, const RouteRule& rule, int64_t tokens) {
  const auto expert = routing.expert.host(), pick_row = routing.pick_row.host();
  const auto row_token = routing.row_token.host(), offset = routing.slot_offset.host();
  const auto hit = routing.hit.host();
  std::vector<int32_t> expected_hits;
  int32_t row = 0;
  for (int e = 0; e < rule.experts; ++e) {
    ASSERT_EQ(offset[e], row) << "expert " << e;
    for (int64_t pick = 0; pick < tokens * rule.top_k; ++pick) {
      if (expert[pick] != e) continue;
      ASSERT_EQ(pick_row[pick], row) << "pick " << pick;
      ASSERT_EQ(row_token[row], pick / rule.top_k) << "row " << row;
      ++row;
    }
    if (row > offset[e]) expected_hits.push_back(e);
  }
  ASSERT_EQ(offset[rule.experts], row);
  ASSERT_EQ(routing.num_hit.host()[0], static_cast<int32_t>(expected_hits.size()));
  for (size_t i = 0; i < expected_hits.size(); ++i) ASSERT_EQ(hit[i], expected_hits[i]);
  for (int64_t pick = 0; pick < tokens * rule.top_k; ++pick) {
    if (expert[pick] < 0) {
      ASSERT_EQ(pick_row[pick], -1);
      ASSERT_EQ(expert[pick], -1);
    }
  }
}

void expect_picks(const RoutingArrays& routing, const RouteRule& rule,
                  const std::vector<float>& logits, const std::vector<float>& bias, int64_t tokens,
                  int64_t live) {
  const auto expert = routing.expert.host();
  const auto weight = routing.weight.host();
  for (int64_t t = 0; t < tokens; ++t) {
    const HostPicks picks =
        host_picks(rule, logits.data() + t * rule.experts, bias.empty() ? nullptr : bias.data());
    for (int k = 0; k < rule.top_k; ++k) {
      const int64_t at = t * rule.top_k + k;
      ASSERT_EQ(expert[at], t < live ? picks.expert[k] : -1) << "token " << t << " pick " << k;
      const double expected = t < live ? picks.weight[k] : 0;
      ASSERT_NEAR(weight[at], expected, 4e-6 * std::abs(expected) + 1e-12)
          << "token " << t << " pick " << k;
    }
  }
}

}  // namespace switchyard::testing
