// SPDX-License-Identifier: Apache-2.0
// Placement: where the experts of one layer live, one or more replicas each.
//
//   E experts, W ranks of S slots each, R replicas beyond the first, over all experts.
//   load [E]: picks of each expert, measured. A replica takes an even share of its expert's picks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace switchyard::placement {

struct SlotId {
  int rank = 0, slot = 0;
  friend bool operator==(const SlotId&, const SlotId&) = default;
};

struct Placement {
  int num_ranks = 0, slots_per_rank = 0;
  std::vector<std::vector<SlotId>> replicas;  ///< [E], one or more each

  int num_experts() const noexcept { return static_cast<int>(replicas.size()); }
  int num_replicas() const noexcept;  ///< over all experts, the first of each not counted
};

/// What a policy decides from.
struct Problem {
  std::span<const double> load;  ///< [E], none negative
  int num_ranks = 1;             ///< W
  int num_replicas = 0;          ///< R
  int num_nodes = 1;             ///< W / nodes ranks each; for policies that know nodes
  int num_groups = 1;            ///< of E / groups experts, to stay on one node where possible

  /// Refuses what no policy can place, as Code::bad_request.
  Status check() const;
};

/// Whether two replicas of an expert may share a rank, where the second is of no use.
enum class Sharing : uint8_t { distinct_ranks, allowed };
/// The first broken rule: every expert placed, slots within the ranks, no slot used twice, and
/// distinct ranks for the replicas of an expert unless sharing is allowed. Code::internal.
Status check_placement(const Placement& placement, Sharing sharing);

/// [W] load of every rank.
std::vector<double> rank_loads(const Placement& placement, std::span<const double> load);
/// The busiest rank over the mean; 1 when there is no load.
double rank_imbalance(const Placement& placement, std::span<const double> load);

}  // namespace switchyard::placement
