// SPDX-License-Identifier: Apache-2.0
#include "placement/pack.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace switchyard::placement {
namespace {

struct Item {
  int expert = 0;
  double load = 0;
};

/// Ranks that fill up.
class Ranks {
 public:
  Ranks(int num_ranks, int slots) : slots_(slots), items_(static_cast<size_t>(num_ranks)) {}

  void place(const Item& item) {
    int best = -1;
    for (int rank = 0; rank < size(); ++rank)
      if (has_room(rank) && !holds(rank, item.expert) && (best < 0 || sum(rank) < sum(best)))
        best = rank;
    if (best >= 0) {
      at(best).push_back(item);
    } else {
      make_room_for(item);
    }
  }

  Placement finish(int num_experts) const {
    Placement placement{size(), slots_, {}};
    placement.replicas.resize(static_cast<size_t>(num_experts));
    for (int rank = 0; rank < size(); ++rank)
      for (size_t slot = 0; slot < at(rank).size(); ++slot)
        placement.replicas[static_cast<size_t>(at(rank)[slot].expert)].push_back(
            {rank, static_cast<int>(slot)});
    return placement;
  }

 private:
  int size() const { return static_cast<int>(items_.size()); }
  std::vector<Item>& at(int rank) { return items_[static_cast<size_t>(rank)]; }
  const std::vector<Item>& at(int rank) const { return items_[static_cast<size_t>(rank)]; }
  bool has_room(int rank) const { return std::ssize(at(rank)) < slots_; }
  bool holds(int rank, int expert) const {
    return std::any_of(at(rank).begin(), at(rank).end(),
                       [&](const Item& item) { return item.expert == expert; });
  }
  double sum(int rank) const {
    return std::accumulate(at(rank).begin(), at(rank).end(), 0.0,
                           [](double total, const Item& item) { return total + item.load; });
  }

  /// All ranks with room hold the expert already: one of them takes an item of a full rank, whose
  /// slot becomes free. There is such an item: the full rank lacks the expert, and both ranks hold
  /// distinct ones, so it holds something that the rank with room, which has fewer, does not.
  void make_room_for(const Item& item) {
    int from = -1, to = -1;
    size_t moved = 0;
    double least = 0;
    for (int full = 0; full < size(); ++full) {
      if (holds(full, item.expert)) continue;
      for (int room = 0; room < size(); ++room) {
        if (!has_room(room)) continue;
        for (size_t i = 0; i < at(full).size(); ++i) {
          const Item& candidate = at(full)[i];
          if (holds(room, candidate.expert)) continue;
          const double busiest =
              std::max(sum(full) - candidate.load + item.load, sum(room) + candidate.load);
          if (from >= 0 && busiest >= least) continue;
          from = full, to = room, moved = i, least = busiest;
        }
      }
    }
    SWITCHYARD_CHECK(from >= 0, "no place for expert {}", item.expert);
    at(to).push_back(at(from)[moved]);
    at(from)[moved] = item;
  }

  int slots_;
  std::vector<std::vector<Item>> items_;
};

}  // namespace

Placement pack(std::span<const double> load, std::span<const int> copies, int num_ranks) {
  std::vector<Item> items;
  for (size_t e = 0; e < load.size(); ++e) {
    SWITCHYARD_CHECK(copies[e] >= 1 && copies[e] <= num_ranks, "{} copies on {} ranks", copies[e],
                     num_ranks);
    items.insert(items.end(), static_cast<size_t>(copies[e]),
                 {static_cast<int>(e), load[e] / copies[e]});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.load > b.load; });
  const int count = static_cast<int>(items.size());
  Ranks ranks(num_ranks, (count + num_ranks - 1) / num_ranks);
  for (const Item& item : items) ranks.place(item);
  return ranks.finish(static_cast<int>(load.size()));
}

Placement better(Placement a, Placement b, std::span<const double> load) {
  return rank_imbalance(b, load) < rank_imbalance(a, load) ? std::move(b) : std::move(a);
}

}  // namespace switchyard::placement
