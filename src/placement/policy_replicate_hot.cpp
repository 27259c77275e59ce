// SPDX-License-Identifier: Apache-2.0
// Replicate the hottest: the R hottest experts live twice, then all replicas are placed greedily.
// Where that is no better than the greedy placement without them, the replicas were of no use, and
// the greedy placement it is.
#include <algorithm>
#include <numeric>

#include "placement/pack.h"
#include "placement/table.h"

namespace switchyard::placement {
namespace {

Result<Placement> place(const Problem& problem) {
  const auto num_experts = problem.load.size();
  const auto hot = static_cast<size_t>(problem.num_replicas);
  if (hot > num_experts || (hot > 0 && problem.num_ranks < 2))
    return fail(Code::unsupported,
                "replicate_hot gives {} experts a second place on another rank, but there are {} "
                "experts on {} ranks",
                hot, num_experts, problem.num_ranks);
  std::vector<size_t> order(num_experts);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return problem.load[a] > problem.load[b]; });
  std::vector<int> copies(num_experts, 1);
  for (size_t i = 0; i < hot; ++i) copies[order[i]] = 2;
  SWITCHYARD_ASSIGN(Placement plain, kGreedy.place(problem));
  return better(std::move(plain), pack(problem.load, copies, problem.num_ranks), problem.load);
}

}  // namespace

const Policy kReplicateHot{"replicate_hot",
                           "the hottest experts live twice, then heaviest first to the lightest "
                           "rank",
                           place};

}  // namespace switchyard::placement
