// SPDX-License-Identifier: Apache-2.0
#include "placement/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace switchyard::placement {

int Placement::num_replicas() const noexcept {
  int count = 0;
  for (const auto& of_expert : replicas) count += static_cast<int>(of_expert.size()) - 1;
  return count;
}

Status Problem::check() const {
  const auto refuse = [](const char* what, int64_t value, const char* expected) {
    return fail(Code::bad_request, "placement: {} is {}, expected {}", what, value, expected);
  };
  if (load.empty()) return refuse("the number of experts", 0, "at least 1");
  if (num_ranks < 1) return refuse("the number of ranks", num_ranks, "at least 1");
  if (num_replicas < 0) return refuse("the number of replicas", num_replicas, "at least 0");
  if (num_nodes < 1 || num_ranks % num_nodes != 0)
    return refuse("the number of nodes", num_nodes, "a divisor of the number of ranks");
  if (num_groups < 1 || std::ssize(load) % num_groups != 0)
    return refuse("the number of groups", num_groups, "a divisor of the number of experts");
  for (const double picks : load)
    if (!(picks >= 0) || !std::isfinite(picks))
      return fail(Code::bad_request, "placement: a load is {}, expected a finite number from 0 on",
                  picks);
  return {};
}

Status check_placement(const Placement& placement, Sharing sharing) {
  const int ranks = placement.num_ranks, slots = placement.slots_per_rank;
  std::vector<int> holder(static_cast<size_t>(ranks) * static_cast<size_t>(slots), -1);
  for (int e = 0; e < placement.num_experts(); ++e) {
    const auto& replicas = placement.replicas[static_cast<size_t>(e)];
    if (replicas.empty()) return fail(Code::internal, "expert {} has no place", e);
    for (const SlotId& at : replicas) {
      if (at.rank < 0 || at.rank >= ranks || at.slot < 0 || at.slot >= slots)
        return fail(Code::internal, "expert {} on rank {} slot {}, of {} ranks and {} slots", e,
                    at.rank, at.slot, ranks, slots);
      int& held = holder[static_cast<size_t>(at.rank) * slots + at.slot];
      if (held >= 0)
        return fail(Code::internal, "experts {} and {} share slot {} of rank {}", held, e, at.slot,
                    at.rank);
      held = e;
      const auto same_rank = std::count_if(replicas.begin(), replicas.end(),
                                           [&](const SlotId& s) { return s.rank == at.rank; });
      if (sharing == Sharing::distinct_ranks && same_rank > 1)
        return fail(Code::internal, "rank {} holds expert {} twice", at.rank, e);
    }
  }
  return {};
}

std::vector<double> rank_loads(const Placement& placement, std::span<const double> load) {
  std::vector<double> loads(static_cast<size_t>(placement.num_ranks));
  for (size_t e = 0; e < placement.replicas.size(); ++e) {
    const double share = load[e] / static_cast<double>(placement.replicas[e].size());
    for (const SlotId& at : placement.replicas[e]) loads[static_cast<size_t>(at.rank)] += share;
  }
  return loads;
}

double rank_imbalance(const Placement& placement, std::span<const double> load) {
  const std::vector<double> loads = rank_loads(placement, load);
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (total <= 0) return 1;
  return *std::max_element(loads.begin(), loads.end()) * static_cast<double>(loads.size()) / total;
}

}  // namespace switchyard::placement
