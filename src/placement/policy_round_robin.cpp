// SPDX-License-Identifier: Apache-2.0
// Round robin: expert e on rank e mod W, whatever its load; no replicas.
#include "placement/table.h"

namespace switchyard::placement {
namespace {

Result<Placement> place(const Problem& problem) {
  const int num_experts = static_cast<int>(problem.load.size()), ranks = problem.num_ranks;
  Placement placement{ranks, (num_experts + ranks - 1) / ranks, {}};
  for (int e = 0; e < num_experts; ++e) placement.replicas.push_back({{e % ranks, e / ranks}});
  return placement;
}

}  // namespace

const Policy kRoundRobin{"round_robin", "expert e on rank e mod ranks, no replicas", place};

}  // namespace switchyard::placement
