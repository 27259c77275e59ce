// SPDX-License-Identifier: Apache-2.0
// What the blocks of the Hopper MoE kernel work on, and in which order.
//
//   item   weight rows [kRows] x tokens [8 ... kTokens] of one expert, over the whole of K
//   pass 1 gate and up (2F rows, K = D)  -> hidden;   pass 2 down (D rows, K = F) -> rows
//   order  all items of pass 1, then all of pass 2; inside by expert, then groups of kTileGroup token tiles, then weight
//          block, then token tile: blocks that run at the same time share weights and tokens in L2
// A block claims its next item from a counter: blocks that become free together then work side by side in the list,
// and what they share is still in L2 (with fixed strides they drift apart, and half of L2's hits are lost). The tokens of
// an expert are split evenly into tiles; a tile is rounded up to 8 tokens, nothing else is padded.
// The order of K is the same for every item: a token's bits do not depend on its tile.
#pragma once
#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_bias.cuh"

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
  bool asks_ahead;  ///< most experts have rows: weights are asked for before the routing is known
};

constexpr int kMaxExperts = 384;
constexpr int kSyncGroups = 48;  ///< counters of finished pass 1 panels, each for a run of experts
constexpr int kSyncLeft = kSyncGroups,
              kSyncClaimed = kSyncGroups + 1;  ///< blocks that are done; items given out
constexpr int kFirstSync = 960;  ///< of MoeFfn::Args::sync: behind the words of other entries
constexpr int kStepInputs = 64;  ///< K of a stage: one swizzle row
constexpr int kStepBytes = 128;
constexpr int kNumConsumers = 2;  ///< warpgroups
constexpr int kGatherThreads = 96;
constexpr int kThreads = 128 * (kNumConsumers + 1);
constexpr int kAheadBytes = 192 * 1024;  ///< of a block; all blocks' must leave room in the L2
constexpr int kQueue = 4;                ///< items that a block may have under way
constexpr int kQueueReaders = 4 * kNumConsumers + kGatherThreads / 32;  ///< warps

/// A tile configuration. kM64: 64-row weight tiles of one consumer; kLead: stages that the first consumer keeps ahead of
/// the second (0: none), so that one multiplies while the other writes results.
template <int kM64_, int kTokens_, int kStages_, int kLead_ = 0>
struct Tile {
  static constexpr int kM64 = kM64_, kTokens = kTokens_, kStages = kStages_, kLead = kLead_;
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

/// The number of token tiles before each expert, and where its rows start.
struct Plan {
  int32_t row_begin[kMaxExperts + 1];
  uint16_t tile_begin[kMaxExperts + 1];
};

/// Rows of expert e in `hidden` start here: a multiple of 8, and room for its rows rounded up to 8.
__device__ __forceinline__ int hidden_row(const Plan& plan, int expert) {
  return (plan.row_begin[expert] & ~7) + 8 * expert;
}

struct alignas(16) Item {
  int pass, expert, block;  ///< block: of kRows weight rows
  int row, valid,
      columns;  ///< first token of the tile inside the expert; real tokens; rounded up to 8
  int steps;    ///< K / kStepInputs; 0 ends the list
  int unused;
};
static_assert(sizeof(Item) == 32);

/// Filled by all threads; one warp scans.
template <class TileT>
__device__ void make_plan(Plan& plan, const MoeFfnParams& p) {
  for (int e = threadIdx.x; e <= p.experts; e += kThreads) plan.row_begin[e] = p.slot_offset[e];
  __syncthreads();
  if (threadIdx.x < 32) {
    int base = 0;
    for (int first = 0; first < p.experts; first += 32) {
      const int e = first + threadIdx.x;
      const int rows = e < p.experts ? plan.row_begin[e + 1] - plan.row_begin[e] : 0;
      const int tiles = (rows + TileT::kTokens - 1) / TileT::kTokens;
      int sum = tiles;
      for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (static_cast<int>(threadIdx.x) >= d) sum += other;
      }
      if (e < p.experts) plan.tile_begin[e] = static_cast<uint16_t>(base + sum - tiles);
      base += __shfl_sync(~0u, sum, 31);
    }
    if (threadIdx.x == 0) plan.tile_begin[p.experts] = static_cast<uint16_t>(base);
  }
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
        tiles_(plan.tile_begin[p.experts]),
        num_items_(tiles_ * (blocks_[0] + (p.passes > 1 ? blocks_[1] : 0))) {}

  __device__ __forceinline__ int num_items() const { return num_items_; }

  __device__ __forceinline__ Item at(int index) {
    Item item{};
    const int in_pass_1 = tiles_ * blocks_[0];
    item.pass = index >= in_pass_1;
    if (item.pass == 1) index -= in_pass_1;
    if (item.pass != pass_) expert_ = 0;
    pass_ = item.pass;
    const int blocks = pass_ == 0 ? blocks_[0] : blocks_[1];
    while (index >= plan_.tile_begin[expert_ + 1] * blocks) ++expert_;
    item.expert = expert_;
    item.steps = pass_ == 0 ? steps_[0] : steps_[1];
    place(item, index, blocks);
    return item;
  }

 private:
  __device__ __forceinline__ void place(Item& item, int index, int blocks) const {
    const int first = plan_.tile_begin[expert_], tiles = plan_.tile_begin[expert_ + 1] - first;
    const int rows = plan_.row_begin[expert_ + 1] - plan_.row_begin[expert_];
    const int local = index - first * blocks;
    const int group = local / (TileT::kTileGroup * blocks);
    const int inside = local - group * TileT::kTileGroup * blocks;
    const int group_tiles = min(TileT::kTileGroup, tiles - group * TileT::kTileGroup);
    item.block = inside / group_tiles;
    const int tile = group * TileT::kTileGroup + inside - item.block * group_tiles;
    const int height = ((rows + tiles - 1) / tiles + 7) & ~7;
    item.row = tile * height;
    item.valid = min(height, rows - item.row);
    item.columns = (item.valid + 7) & ~7;
  }

  const Plan& plan_;
  const int blocks_[2], steps_[2];
  const int tiles_, num_items_;
  int pass_ = 0, expert_ = 0;
};

}  // namespace switchyard::cuda::sm90a
