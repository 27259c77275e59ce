// SPDX-License-Identifier: Apache-2.0
// The lists of items that the blocks of the Hopper MoE kernel take from, and how they take; what is in them, and in which order, is in
// moe_ffn_sm90a_plan.cuh.
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_ffn_sm90a_plan.cuh"
#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda::sm90a {

/// Whether weight blocks of 256 rows lie on one side of the L2 each, by turns.
__device__ __forceinline__ bool has_sides(const MoeFfnParams& p) {
  constexpr int kRows = MoePack::kGroupStrips * MoePack::kBlockRows;
  return p.sides.mask != 0 && 2 * p.ffn_width % kRows == 0 && p.width % kRows == 0;
}

/// Turns ascending indices of the lists into items. Without sides all items are in the lists of side 0. For one whole warp.
template <class TileT>
class List {
 public:
  __device__ __forceinline__ List(const Plan& plan, const MoeFfnParams& p)
      : plan_(plan),
        experts_(p.experts),
        passes_(p.passes),
        sides_(has_sides(p) ? 2 : 1),
        blocks_{2 * p.ffn_width / TileT::kRows / sides_, p.width / TileT::kRows / sides_},
        steps_{p.width / kStepInputs, p.ffn_width / kStepInputs} {}

  __device__ __forceinline__ int num_items(int list) const {
    if (list % 2 >= sides_ || list / 2 >= passes_) return 0;
    if (list < 2) return plan_.tiles * blocks_[0];
    return plan_.tiles * (plan_.split ? 2 * num_cut() : blocks_[1]);
  }

  __device__ __forceinline__ Item at(int list, int index) {
    Item item{};
    item.pass = list / 2;
    item.steps = item.pass == 0 ? steps_[0] : steps_[1];
    item.last = true;
    if (plan_.split) {
      if (item.pass == 0) {
        find_among(item, index, blocks_[0], kSplitGroup);
      } else {
        find_part(item, index);
      }
    } else {
      if (list != list_) first_ = before_ = 0;
      list_ = list;
      find(item, index, item.pass == 0 ? blocks_[0] : blocks_[1]);
    }
    if (sides_ > 1) {
      constexpr int kStrips = TileT::kRows / MoePack::kBlockRows;
      item.block = MoePack::on_side<kStrips>(item.block, list % 2);
    }
    return item;
  }

 private:
  /// Weight blocks that have a first part, and as many that have a second one: the first block is all second, the last all first part.
  __device__ __forceinline__ int num_cut() const { return blocks_[1] - 1; }

  /// Weight block b of n is cut at b / (n - 1) of K. First parts are taken in ascending order of length, second ones in descending: whoever
  /// had a short first part takes a long second one next, the shortest come last, and a second part's first part is long under way.
  __device__ __forceinline__ void find_part(Item& item, int index) {
    const int firsts = plan_.tiles * num_cut();
    item.carried = index >= firsts;
    find_among(item, item.carried ? index - firsts : index, num_cut(),
               item.carried ? kMostSplitExperts : kSplitGroup);
    if (!item.carried) ++item.block;
    const int cut = steps_[1] * item.block / num_cut();
    item.first_step = item.carried ? cut : 0;
    item.steps = item.carried ? steps_[1] - cut : cut;
    item.last = item.carried || item.block == num_cut();
    item.carried = item.carried && item.block > 0;
  }

  /// Groups of `together` experts, and inside of a group block by block. Of at most 32 experts.
  __device__ __forceinline__ void find_among(Item& item, int index, int blocks,
                                             int together) const {
    const int lane = threadIdx.x % 32;
    const int tiles = lane < experts_ ? parts_of(plan_.rows_of(lane), TileT::kTokens) : 0;
    int through = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, through, step);
      if (lane >= step) through += lower;
    }
    const int leader = lane / together * together;
    const int begin = __shfl_sync(kAllLanes, through - tiles, leader);
    const int end = __shfl_sync(kAllLanes, through, min(leader + together - 1, 31));
    const int any = __ffs(__ballot_sync(kAllLanes, index < end * blocks)) - 1;  // of the group
    const int first = __shfl_sync(kAllLanes, begin, any);
    const int group_tiles = __shfl_sync(kAllLanes, end, any) - first;
    const int inside = index - first * blocks;
    const int tile = first + inside % group_tiles;
    item.block = inside / group_tiles;
    item.expert = __ffs(__ballot_sync(kAllLanes, tile < through)) - 1;
    const int own = __shfl_sync(kAllLanes, tiles, item.expert);
    set_tile(item, tile - __shfl_sync(kAllLanes, through, item.expert) + own, own);
  }

  /// Looks at 32 experts at a time, from those on in which the item before was.
  __device__ __forceinline__ void find(Item& item, int index, int blocks) {
    const int lane = threadIdx.x % 32;
    for (; first_ < experts_; first_ += 32) {
      const int expert = first_ + lane;
      const int rows = expert < experts_ ? plan_.rows_of(expert) : 0;
      const int tiles = parts_of(rows, TileT::kTokens);
      int through = tiles;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync(kAllLanes, through, step);
        if (lane >= step) through += lower;
      }
      through += before_;
      const uint32_t beyond = __ballot_sync(kAllLanes, index < through * blocks);
      if (beyond == 0) {
        before_ = __shfl_sync(kAllLanes, through, 31);
        continue;
      }
      const int owner = __ffs(beyond) - 1;
      item.expert = first_ + owner;
      const int own = __shfl_sync(kAllLanes, tiles, owner);
      place(item, index - (__shfl_sync(kAllLanes, through, owner) - own) * blocks, blocks, own);
      return;
    }
  }

  __device__ __forceinline__ void place(Item& item, int local, int blocks, int tiles) const {
    const int group = local / (TileT::kTileGroup * blocks);
    const int inside = local - group * TileT::kTileGroup * blocks;
    const int group_tiles = min(TileT::kTileGroup, tiles - group * TileT::kTileGroup);
    item.block = inside / group_tiles;
    set_tile(item, group * TileT::kTileGroup + inside - item.block * group_tiles, tiles);
  }

  __device__ __forceinline__ void set_tile(Item& item, int tile, int tiles) const {
    const int rows = plan_.rows_of(item.expert);
    const int height = rounded_to_8(parts_of(rows, tiles));
    item.row = tile * height;
    item.valid = min(height, rows - item.row);
    item.columns = rounded_to_8(item.valid);
    item.shared = tiles > 1;
  }

  const Plan& plan_;
  const int experts_, passes_, sides_;
  const int blocks_[2], steps_[2];  // of a side; of K
  int list_ = 0;                    // of the item before
  int first_ = 0,
      before_ = 0;  // of the experts that were looked at: the first, and tiles of those before it
};

/// The items that a block takes: those of its own side while there are any, then the other's, pass after pass. All of pass 1 are taken
/// before any of pass 2, so whoever waits for hidden rows waits for blocks that run. For one whole warp; lane l looks after the l-th list.
template <class TileT>
class Claims {
 public:
  /// Asks for the first item, which may be before it is known how many there are: for each lane, what the constructor takes.
  static __device__ __forceinline__ int ask_first(const MoeFfnParams& p) {
    int* const counters = p.sync + kSyncClaimed;
    const int lane = threadIdx.x % 32, own = list_of(p, lane);
    return lane == 0 ? atomicAdd(&counters[own], 1) : load_relaxed(&counters[own]);
  }
  __device__ __forceinline__ Claims(const List<TileT>& list, const MoeFfnParams& p, int asked)
      : counters_(p.sync + kSyncClaimed),
        lane_(threadIdx.x % 32),
        own_(list_of(p, lane_)),
        size_(lane_ < kLists ? list.num_items(own_) : 0),
        taken_(asked) {}
  /// Asks for the next item, and looks how far the later lists are; settle() waits for the answers.
  __device__ __forceinline__ void ask() {
    if (lane_ == at_) taken_ = atomicAdd(&counters_[own_], 1);
    if (lane_ > at_ && lane_ < kLists) taken_ = load_relaxed(&counters_[own_]);
  }
  /// Whether there is an item: index() of list().
  __device__ __forceinline__ bool settle() {
    while (true) {
      const uint32_t left = __ballot_sync(kAllLanes, lane_ >= at_ && taken_ < size_);
      if (left == 0) return false;
      const int first = __ffs(left) - 1;
      if (first == at_) return true;
      at_ = first;
      if (lane_ == at_) taken_ = atomicAdd(&counters_[own_], 1);
    }
  }
  __device__ __forceinline__ int list() const { return __shfl_sync(kAllLanes, own_, at_); }
  __device__ __forceinline__ int index() const { return __shfl_sync(kAllLanes, taken_, at_); }

 private:
  static __device__ __forceinline__ int list_of(const MoeFfnParams& p, int lane) {
    const int side = has_sides(p) ? side_of_this_block(p.sides) : 0;
    return (lane ^ side) % kLists;
  }

  int* const counters_;
  const int lane_, own_, size_;  // own, size: of this lane, the list and its items
  int taken_;                    // of the list, as last seen
  int at_ = 0;                   // the list that items are taken from
};

}  // namespace switchyard::cuda::sm90a
