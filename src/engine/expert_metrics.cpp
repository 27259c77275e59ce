// SPDX-License-Identifier: Apache-2.0
#include "engine/expert_metrics.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace switchyard::engine {
namespace {

/// The `count` experts with most picks, in order of their numbers.
std::vector<int> busiest(const std::vector<uint64_t>& picks, size_t count) {
  std::vector<int> experts(picks.size());
  std::iota(experts.begin(), experts.end(), 0);
  count = std::min(count, experts.size());
  const auto last = experts.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(experts.begin(), last, experts.end(), [&](int a, int b) {
    const uint64_t of_a = picks[static_cast<size_t>(a)], of_b = picks[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  experts.resize(count);
  std::sort(experts.begin(), experts.end());
  return experts;
}

}  // namespace

std::string expert_metrics_text(const Statistics& statistics, MetricDetail detail, int top) {
  if (detail == MetricDetail::off || detail == MetricDetail::layer || statistics.num_layers() == 0)
    return {};
  std::string out =
      "# HELP switchyard_expert_assignments_total Assignments before any drop, by MoE layer and "
      "expert\n# TYPE switchyard_expert_assignments_total counter\n";
  for (int layer = 0; layer < statistics.num_layers(); ++layer) {
    const int experts = statistics.experts(layer);
    std::vector<uint64_t> picks(static_cast<size_t>(experts));
    for (int e = 0; e < experts; ++e)
      picks[static_cast<size_t>(e)] = statistics.expert_picks(layer, e);
    const int shown = detail == MetricDetail::top ? top : experts;
    for (const int e : busiest(picks, static_cast<size_t>(shown)))
      fmt::format_to(std::back_inserter(out),
                     "switchyard_expert_assignments_total{{layer=\"{}\",expert=\"{}\"}} {}\n",
                     layer, e, picks[static_cast<size_t>(e)]);
  }
  return out;
}

}  // namespace switchyard::engine
