// SPDX-License-Identifier: Apache-2.0
// Greedy: the heaviest expert first, each to the lightest rank that has a slot; no replicas. Where
// the limit on slots makes that worse than round robin, round robin it is.
#include "placement/pack.h"
#include "placement/table.h"

namespace switchyard::placement {
namespace {

Result<Placement> place(const Problem& problem) {
  const std::vector<int> once(problem.load.size(), 1);
  SWITCHYARD_ASSIGN(Placement plain, kRoundRobin.place(problem));
  return better(pack(problem.load, once, problem.num_ranks), std::move(plain), problem.load);
}

}  // namespace

const Policy kGreedy{"greedy", "heaviest expert first, to the lightest rank; no replicas", place};

}  // namespace switchyard::placement
