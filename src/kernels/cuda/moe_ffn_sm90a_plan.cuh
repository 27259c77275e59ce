// SPDX-License-Identifier: Apache-2.0
// What the blocks of the Hopper MoE kernel work on, and in which order.
//
//   item   weight rows [kRows] x tokens [8 ... kTokens] of one expert, over the whole of K
//   pass 1 gate and up (2F rows, K = D)  -> hidden;   pass 2 down (D rows, K = F) -> rows
//   order  all items of pass 1, then all of pass 2; inside by expert, then groups of kTileGroup token tiles, then weight
//          block, then token tile: blocks that run at the same time share weights and tokens in L2
// A block claims its next item from a counter: blocks that become free together then work side by side in the list,
// and what they share is still in L2 (with fixed strides they drift apart, and half of L2's hits are lost). It claims late, so
// that none is left with two long items where others have none. The tokens of an expert are split evenly into tiles; a tile is
// rounded up to 8 tokens, nothing else is padded. Pass 2 has tiles of its own: with few weight blocks (few, wide experts) full
// tiles would end in a wave of few items.
// The order of K is the same for every item: a token's bits do not depend on its tile.
#pragma once
#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda::sm90a {

/// What the kernel is given. Row counts are read from slot_offset on the device.
struct MoeFfnParams {
  const __nv_bfloat16* x;    ///< [T, D]
  const __nv_bfloat16* w13;  ///< packed, see ops/moe_pack.h
  const __nv_bfloat16* w2;
  __nv_bfloat16* hidden;  ///< [F / 64][hidden_rows][64] swizzled: a stage of tokens is one copy
  __nv_bfloat16* rows;    ///< [R, D]
  const int32_t* slot_offset;  ///< [E + 1]
  const int32_t* row_token;    ///< [R]
  int32_t* sync;               ///< [kSyncGroups + 2] zero, left zero
  int experts, width, ffn_width;
  int hidden_rows;
  int passes;  ///< 2; 1: the hidden rows are all
  GluActivation activation;
  GluCurve curve;
  RowBias up_bias, down_bias;
  bool biased;
  bool reads_once;  ///< weights give way in the L2, to rows and hidden rows
  bool asks_ahead;  ///< most experts have rows: weights are asked for before the routing is known
};

constexpr int kMaxExperts = 384;
constexpr int kSyncGroups = 48;  ///< counters of finished pass 1 panels, each for a run of experts
constexpr int kSyncLeft = kSyncGroups,
              kSyncClaimed = kSyncGroups + 1;  ///< blocks that are done; items given out
constexpr int kFirstSync = 960;  ///< of MoeFfn::Args::sync: between the words of the single launch
constexpr int kStepInputs = 64;  ///< K of a stage: one swizzle row
constexpr int kStepBytes = 128;
constexpr int kNumConsumers = 2;  ///< warpgroups
constexpr int kGatherThreads = 96;
constexpr int kThreads = 128 * (kNumConsumers + 1);
constexpr int kAheadBytes = 192 * 1024;  ///< of a block; all blocks' must leave room in the L2
constexpr int kQueue = 4;                ///< items that a block may have under way
constexpr int kClaimSteps =
    8;  ///< before an item's last stage: the answer takes some us under load
constexpr int kQueueReaders = 4 * kNumConsumers + kGatherThreads / 32;  ///< warps

/// A tile configuration. kM64: 64-row weight tiles of one consumer; kLead: stages that the first consumer keeps ahead of
/// the second (0: none), so that one multiplies while the other writes results; kEager: stages are awaited, so each is freed
/// as soon as it is multiplied, at the price of a pause between products.
template <int kM64_, int kTokens_, int kStages_, int kLead_ = 0, bool kEager_ = false>
struct Tile {
  static constexpr int kM64 = kM64_, kTokens = kTokens_, kStages = kStages_, kLead = kLead_;
  static constexpr bool kEager = kEager_;
  static constexpr int kRows = 64 * kM64 * kNumConsumers;
  static constexpr int kWeightBytes = kRows * kStepBytes;
  static constexpr int kTokenBytes = kTokens * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kTileGroup = kTokens > 128 ? 8 : 16;
  /// Together 3 x 168, what the block starts with; the accumulators of a consumer take kM64 * kTokens / 2.
  static constexpr int kConsumerRegisters = kM64 * kTokens > 256 ? 224 : 216;
  static constexpr int kLoaderRegisters = 504 - 2 * kConsumerRegisters;
  static constexpr int kPanels = kRows / 128;  ///< panels of 64 hidden columns that an item makes
};

/// Where each expert's rows start, and how they are cut into tiles: of at most so many tokens in each pass, and so many in all.
struct Plan {
  int32_t row_begin[kMaxExperts + 1];
  int32_t height[2], tiles[2];

  __device__ __forceinline__ int rows_of(int expert) const {
    return row_begin[expert + 1] - row_begin[expert];
  }
  /// Rows of an expert in `hidden` start here: a multiple of 8, and room for its rows rounded up to 8.
  __device__ __forceinline__ int hidden_row(int expert) const {
    return (row_begin[expert] & ~7) + 8 * expert;
  }
};

__device__ __forceinline__ int parts_of(int count, int size) {
  return static_cast<int>(static_cast<unsigned>(count + size - 1) / static_cast<unsigned>(size));
}
__device__ __forceinline__ int rounded_to_8(int count) { return (count + 7) & ~7; }

struct alignas(16) Item {
  int pass, expert, block;  ///< block: of kRows weight rows
  int row, valid,
      columns;  ///< first token of the tile inside the expert; real tokens; rounded up to 8
  int steps;    ///< K / kStepInputs; 0 ends the list
  int unused;
};
static_assert(sizeof(Item) == 32);

struct Tiling {
  int tiles, tallest;
};
/// One warp: what tiles of at most `height` tokens come to.
__device__ __forceinline__ Tiling tiling_of(const Plan& plan, int experts, int height) {
  Tiling all{};
  for (int e = threadIdx.x % 32; e < experts; e += 32) {
    const int rows = plan.rows_of(e), tiles = parts_of(rows, height);
    all.tiles += tiles;
    if (tiles > 0) all.tallest = max(all.tallest, rounded_to_8(parts_of(rows, tiles)));
  }
  return {__reduce_add_sync(kAllLanes, all.tiles), __reduce_max_sync(kAllLanes, all.tallest)};
}

/// One warp. Pass 2: where items make few waves, the waves times the tallest tile count.
template <class TileT>
__device__ void choose_heights(Plan& plan, const MoeFfnParams& p) {
  constexpr int kFewWaves = 3, kStep = 32, kLeast = 64;
  constexpr int kBound = 96;  // tokens; shorter tiles take as long: their weights bind
  const Tiling full = tiling_of(plan, p.experts, TileT::kTokens);
  const int blocks = p.width / TileT::kRows;
  const auto waves = [&](const Tiling& of) { return parts_of(of.tiles * blocks, gridDim.x); };
  Tiling best = full;
  int height = TileT::kTokens;
  if (waves(full) <= kFewWaves) {
    for (int other = height - kStep; other >= kLeast; other -= kStep) {
      const Tiling of = tiling_of(plan, p.experts, other);
      if (waves(of) * max(of.tallest, kBound) >= waves(best) * max(best.tallest, kBound)) continue;
      best = of;
      height = other;
    }
  }
  if (threadIdx.x % 32 != 0) return;
  plan.height[0] = TileT::kTokens;
  plan.tiles[0] = full.tiles;
  plan.height[1] = height;
  plan.tiles[1] = best.tiles;
}

/// Filled by all threads.
template <class TileT>
__device__ void make_plan(Plan& plan, const MoeFfnParams& p) {
  for (int e = threadIdx.x; e <= p.experts; e += kThreads) plan.row_begin[e] = p.slot_offset[e];
  __syncthreads();
  if (threadIdx.x < 32) choose_heights<TileT>(plan, p);
  __syncthreads();
}

/// Turns ascending indices of the list into items.
template <class TileT>
class Walk {
 public:
  __device__ __forceinline__ Walk(const Plan& plan, const MoeFfnParams& p)
      : plan_(plan),
        blocks_{2 * p.ffn_width / TileT::kRows, p.width / TileT::kRows},
        steps_{p.width / kStepInputs, p.ffn_width / kStepInputs},
        in_pass_1_(plan.tiles[0] * blocks_[0]),
        num_items_(in_pass_1_ + (p.passes > 1 ? plan.tiles[1] * blocks_[1] : 0)) {}

  __device__ __forceinline__ int num_items() const { return num_items_; }

  __device__ __forceinline__ Item at(int index) {
    Item item{};
    item.pass = index >= in_pass_1_;
    if (item.pass == 1) index -= in_pass_1_;
    if (item.pass != pass_) expert_ = tiles_before_ = 0;
    pass_ = item.pass;
    const int blocks = pass_ == 0 ? blocks_[0] : blocks_[1], height = plan_.height[pass_];
    int tiles = parts_of(plan_.rows_of(expert_), height);
    while (index >= (tiles_before_ + tiles) * blocks) {
      tiles_before_ += tiles;
      tiles = parts_of(plan_.rows_of(++expert_), height);
    }
    item.expert = expert_;
    item.steps = pass_ == 0 ? steps_[0] : steps_[1];
    place(item, index - tiles_before_ * blocks, blocks, tiles);
    return item;
  }

 private:
  __device__ __forceinline__ void place(Item& item, int local, int blocks, int tiles) const {
    const int rows = plan_.rows_of(expert_);
    const int group = local / (TileT::kTileGroup * blocks);
    const int inside = local - group * TileT::kTileGroup * blocks;
    const int group_tiles = min(TileT::kTileGroup, tiles - group * TileT::kTileGroup);
    item.block = inside / group_tiles;
    const int tile = group * TileT::kTileGroup + inside - item.block * group_tiles;
    const int height = rounded_to_8(parts_of(rows, tiles));
    item.row = tile * height;
    item.valid = min(height, rows - item.row);
    item.columns = rounded_to_8(item.valid);
  }

  const Plan& plan_;
  const int blocks_[2], steps_[2];
  const int in_pass_1_, num_items_;
  int pass_ = 0, expert_ = 0, tiles_before_ = 0;  // before expert_
};

}  // namespace switchyard::cuda::sm90a
