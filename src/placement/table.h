// SPDX-License-Identifier: Apache-2.0
// The policies that are known, by name.
#pragma once
#include <span>
#include <string_view>

#include "placement/placement.h"

namespace switchyard::placement {

struct Policy {
  std::string_view name, help;
  /// Places a problem that has passed check(). Errors: Code::unsupported for sizes that the policy
  /// cannot place.
  Result<Placement> (*place)(const Problem& problem);
  Sharing sharing = Sharing::distinct_ranks;
};

/// Round robin first: the others are compared with it.
std::span<const Policy* const> policies();

extern const Policy kRoundRobin, kGreedy, kReplicateHot, kEplb;

}  // namespace switchyard::placement
