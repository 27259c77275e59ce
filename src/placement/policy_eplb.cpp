// SPDX-License-Identifier: Apache-2.0
// EPLB: the published load balancer of DeepSeek, slot for slot, to compare with.
//
//   groups to nodes, heaviest first; within a node the expert with the most load per replica gets
//   the next replica; replicas to ranks, heaviest first, an equal number each. When the nodes do
//   not divide the groups, all is one node and one group.
// It may put two replicas of an expert on one rank. Every sort is stable, so that the plan is the
// same on every machine. Cost O(R E) for the replicas and O((E + R) log(E + R)) for the packing.
// Source: the description of github.com/deepseek-ai/EPLB; DeepSeek-V3, arXiv 2412.19437, 3.4.
#include <algorithm>
#include <numeric>
#include <vector>

#include "placement/table.h"

namespace switchyard::placement {
namespace {

/// Where each item went.
struct Packed {
  std::vector<int> pack, position;
};

/// Items into `packs` packs of equally many, heaviest first, each to the lightest pack with room.
Packed pack_evenly(const std::vector<double>& load, int packs) {
  const int count = static_cast<int>(load.size()), room = count / packs;
  Packed packed{std::vector<int>(load.size()), std::vector<int>(load.size())};
  std::vector<int> order(load.size());
  std::iota(order.begin(), order.end(), 0);
  if (room == 1) {
    packed.pack = order;  // nothing to choose
    return packed;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return load[a] > load[b]; });
  std::vector<double> sums(static_cast<size_t>(packs));
  std::vector<int> used(static_cast<size_t>(packs));
  for (const int item : order) {
    int best = -1;
    for (int p = 0; p < packs; ++p)
      if (used[p] < room && (best < 0 || sums[p] < sums[best])) best = p;
    packed.pack[item] = best;
    packed.position[item] = used[best]++;
    sums[best] += load[item];
  }
  return packed;
}

/// The experts of `slots` slots: each once in order, then again whoever has the most per replica.
std::vector<int> replicate(const std::vector<double>& load, int slots, std::vector<int>& copies) {
  std::vector<int> expert(load.size());
  std::iota(expert.begin(), expert.end(), 0);
  copies.assign(load.size(), 1);
  while (std::ssize(expert) < slots) {
    size_t hottest = 0;
    for (size_t e = 1; e < load.size(); ++e)
      if (load[e] / copies[e] > load[hottest] / copies[hottest]) hottest = e;
    expert.push_back(static_cast<int>(hottest));
    ++copies[hottest];
  }
  return expert;
}

/// [E] the experts in the order of their groups' places on the nodes.
std::vector<int> order_by_node(const Problem& problem, int groups, int nodes) {
  const int size = static_cast<int>(problem.load.size()) / groups;
  std::vector<double> group_load(static_cast<size_t>(groups));
  for (size_t e = 0; e < problem.load.size(); ++e)
    group_load[e / static_cast<size_t>(size)] += problem.load[e];
  const Packed packed = pack_evenly(group_load, nodes);
  std::vector<int> order(problem.load.size());
  for (int g = 0; g < groups; ++g) {
    const int place = packed.pack[g] * (groups / nodes) + packed.position[g];
    for (int i = 0; i < size; ++i) order[place * size + i] = g * size + i;
  }
  return order;
}

/// Places the experts of one node, `order` of the whole problem's, on the node's ranks.
void place_node(const Problem& problem, std::span<const int> order, int first_rank, int ranks,
                Placement& placement) {
  std::vector<double> load;
  load.reserve(order.size());
  for (const int expert : order) load.push_back(problem.load[static_cast<size_t>(expert)]);
  std::vector<int> copies;
  const std::vector<int> held = replicate(load, ranks * placement.slots_per_rank, copies);
  std::vector<double> share;
  share.reserve(held.size());
  for (const int e : held) share.push_back(load[e] / copies[e]);
  const Packed packed = pack_evenly(share, ranks);
  for (size_t i = 0; i < held.size(); ++i)
    placement.replicas[static_cast<size_t>(order[held[i]])].push_back(
        {first_rank + packed.pack[i], packed.position[i]});
}

Result<Placement> place(const Problem& problem) {
  const int num_experts = static_cast<int>(problem.load.size()), ranks = problem.num_ranks;
  const int slots = num_experts + problem.num_replicas;
  if (slots % ranks != 0)
    return fail(Code::unsupported,
                "eplb fills every slot: {} experts and {} replicas do not divide into {} ranks",
                num_experts, problem.num_replicas, ranks);
  const bool by_node = problem.num_groups % problem.num_nodes == 0;
  const int groups = by_node ? problem.num_groups : 1, nodes = by_node ? problem.num_nodes : 1;
  Placement placement{ranks, slots / ranks, {}};
  placement.replicas.resize(problem.load.size());
  const std::vector<int> order = order_by_node(problem, groups, nodes);
  const int each = num_experts / nodes, ranks_each = ranks / nodes;
  for (int n = 0; n < nodes; ++n)
    place_node(problem, std::span(order).subspan(static_cast<size_t>(n) * each, each),
               n * ranks_each, ranks_each, placement);
  return placement;
}

}  // namespace

const Policy kEplb{"eplb", "the published balancer of DeepSeek, for comparison", place,
                   Sharing::allowed};

}  // namespace switchyard::placement
