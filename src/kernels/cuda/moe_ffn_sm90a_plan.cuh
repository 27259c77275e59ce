// SPDX-License-Identifier: Apache-2.0
// What the blocks of the Hopper MoE kernel work on, and in which order.
//
//   item   weight rows [kRows] x tokens [8 ... kTokens] of one expert, over the whole of K
//   pass 1 gate and up (2F rows, K = D)  -> hidden;   pass 2 down (D rows, K = F) -> rows
//   part   of an item of pass 2: the first or the second part of K. Where items are few and long (few, wide experts), whole ones would
//          leave many blocks idle at the end; who takes the second part starts from the sums of the first
//   order  all items of pass 1, then all of pass 2; inside by expert, then groups of kTileGroup token tiles, then weight block, then
//          token tile: blocks that run at the same time share weights and tokens in L2. With parts, a few experts go together, weight
//          block by weight block: those with many tokens, which products bind, beside those with few, which memory binds
//   lists  of a pass there are two where the sides of the L2 are known (ops/l2_sides.h): weight blocks of 256 rows lie on side 0 and 1 by
//          turns, and a block takes those of its own side while there are any
// A block claims its next item from the list's counter: blocks that become free together then work side by side in the list,
// and what they share is still in L2 (with fixed strides they drift apart, and half of L2's hits are lost). It claims late, so
// that none is left with two long items where others have none. The tokens of an expert are split evenly into tiles; a tile is
// rounded up to 8 tokens, nothing else is padded.
// The order of K is the same for every item, in parts or not: a token's bits do not depend on its tile.
#pragma once
#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda::sm90a {

/// Which weights are asked for before the routing is known (moe_ffn_sm90a_ahead.cuh).
enum class Ahead : uint8_t { none, own, taken };

/// What the kernel is given. Row counts are read from slot_offset on the device.
struct MoeFfnParams {
  const __nv_bfloat16* x;    ///< [T, D]
  const __nv_bfloat16* w13;  ///< packed, see ops/moe_pack.h
  const __nv_bfloat16* w2;
  L2Sides sides;          ///< by which weights are placed
  __nv_bfloat16* hidden;  ///< [F / 64][hidden_rows][64] swizzled: a stage of tokens is one copy
  __nv_bfloat16* rows;    ///< [R, D]
  const int32_t* slot_offset;  ///< [E + 1]
  const int32_t* row_token;    ///< [R]
  int32_t* sync;               ///< [kSyncWords] zero, left zero
  int experts, width, ffn_width;
  int hidden_rows;
  bool keeps_hidden;  ///< tiles that may do so do
  int passes;         ///< 2; 1: the hidden rows are all
  GluActivation activation;
  GluCurve curve;
  RowBias up_bias, down_bias;
  bool biased;
  float* carry;  ///< sums of first parts, [carry_rows][D] in an order of their own
  int carry_rows;
  Ahead ahead;
};

constexpr int kMaxExperts = 384;
constexpr int kSyncGroups = 64;  ///< counters of finished pass 1 panels, each for a run of experts
constexpr int kSyncCarried = kSyncGroups;  ///< as many: first parts of each weight block
constexpr int kSyncLeft = 2 * kSyncGroups,
              kSyncClaimed = kSyncLeft + 1;  ///< blocks that are done; items given out of each list
constexpr int kLists = 4;                    ///< of items: 2 * pass + side of the L2
constexpr int kSyncAhead = kSyncClaimed + kLists;  ///< shares of each side that were taken
constexpr int kSyncWords = kSyncAhead + 2;
constexpr int kFirstSync = 768;  ///< of MoeFfn::Args::sync: between the words of the single launch
constexpr int kStepInputs = 64;  ///< K of a stage: one swizzle row
constexpr int kStepBytes = 128;
constexpr int kUnitTokens = 64;  ///< of the ring of tokens
constexpr int kUnitBytes = kUnitTokens * kStepBytes;
constexpr int kNumConsumers = 2;  ///< warpgroups
constexpr int kGatherThreads = 64;
constexpr int kThreads = 128 * (kNumConsumers + 1);
constexpr int kQueue = 4;  ///< items that a block may have under way
constexpr int kClaimSteps =
    8;  ///< before an item's last stage: the answer takes some us under load
constexpr int kLeastSplitSteps = 64;  ///< of an item of pass 2 that has parts
constexpr int kMostSplitExperts = 32;
constexpr int kSplitGroup = 4;  ///< experts that go together in a split layer
constexpr int kQueueReaders = 4 * kNumConsumers + kGatherThreads / 32 + 1;  ///< warps

/// A tile configuration. kM64: 64-row weight tiles of one consumer; kTokenUnits: units of tokens in the ring of tokens; kStaged: tokens of
/// a staging panel.
template <int kM64_, int kTokens_, int kStages_, int kTokenUnits_ = 0, int kStaged_ = kTokens_>
struct Tile {
  static constexpr int kM64 = kM64_, kTokens = kTokens_, kStages = kStages_;
  static constexpr int kTokenUnits = kTokenUnits_, kStaged = kStaged_;
  /// Stages are awaited, so that each is freed as soon as it is multiplied, at the price of a pause between products: where there are few.
  static constexpr bool kEager = kStages <= 4;
  /// Sums that are read keep the compiler from overlapping products, and only stages that are awaited do without that.
  static constexpr bool kSplits = kEager;
  /// Weights that several tiles read stay in the L2. With few tokens hardly any are, and to ask costs 2 %.
  static constexpr bool kKeepsShared = kTokens > 64;
  /// Whether hidden rows may be kept in the L2 until combine lets them go. With few tokens memory holds all up, and they are few.
  static constexpr bool kKeepsHidden = kTokens > 64;
  static constexpr int kRows = 64 * kM64 * kNumConsumers;
  static constexpr int kWeightBytes = kRows * kStepBytes;
  static constexpr int kStagedBytes = kStaged * kStepBytes;
  static constexpr bool kApart = kTokenUnits > 0;  ///< tokens have a ring of their own
  static constexpr int kTokenRingBytes =
      kApart ? kTokenUnits * kUnitBytes : kStages * kTokens * kStepBytes;
  static_assert(kStaged % 32 == 0 && kTokens % kStaged == 0);
  static constexpr int kTileGroup = kTokens > 128 ? 8 : 16;
  /// Together 3 x 168, what the block starts with; the accumulators of a consumer take kM64 * kTokens / 2.
  static constexpr int kConsumerRegisters = kM64 * kTokens > 256 ? 224 : 216;
  static constexpr int kLoaderRegisters = 504 - 2 * kConsumerRegisters;
  static constexpr int kPanels = kRows / 128;  ///< panels of 64 hidden columns that an item makes
  static constexpr int kPanelWarps = 4 * kNumConsumers / kPanels;  ///< that fill one
};

/// Where each expert's rows start, and what the list of items comes to.
struct Plan {
  int32_t row_begin[kMaxExperts + 1];
  int32_t tiles;  ///< of all experts
  bool split;     ///< items of pass 2 have parts

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

/// Whether pass 2 is done in parts: where a last wave of few, long items would leave most blocks idle. Costs are hundredths of a wave;
/// parts fill all blocks, but an item takes as long as before.
__device__ __forceinline__ bool is_split(const MoeFfnParams& p, int items, int rows) {
  constexpr int kMostWaves = 3, kWave = 100, kSplitCost = 15, kLeastWidth = 1024;
  const int blocks = static_cast<int>(gridDim.x), waves = parts_of(items, blocks);
  return rows <= p.carry_rows && p.experts <= kMostSplitExperts && p.width >= kLeastWidth &&
         waves <= kMostWaves &&
         kWave * max(items, blocks) + kSplitCost * blocks < kWave * waves * blocks;
}

struct alignas(16) Item {
  int expert, block;  ///< block: of kRows weight rows
  int row, valid,
      columns;  ///< first token of the tile inside the expert; real tokens; rounded up to 8
  int first_step, steps;  ///< of K / kStepInputs; no steps end the list
  int8_t pass;
  bool shared;   ///< other items have the same weights
  bool carried;  ///< a second part
  bool last;     ///< no part follows
};
static_assert(sizeof(Item) == 32);

/// One warp.
template <class TileT>
__device__ __forceinline__ void count_items(Plan& plan, const MoeFfnParams& p) {
  int tiles = 0;
  for (int e = threadIdx.x; e < p.experts; e += 32) {
    tiles += parts_of(plan.rows_of(e), TileT::kTokens);
  }
  tiles = __reduce_add_sync(kAllLanes, tiles);
  const int rows = plan.hidden_row(p.experts);
  if (threadIdx.x != 0) return;
  plan.tiles = tiles;
  plan.split = TileT::kSplits && is_split(p, tiles * (p.width / TileT::kRows), rows);
}

/// Filled by all threads.
template <class TileT>
__device__ void make_plan(Plan& plan, const MoeFfnParams& p) {
  for (int e = threadIdx.x; e <= p.experts; e += kThreads) plan.row_begin[e] = p.slot_offset[e];
  __syncthreads();
  if (threadIdx.x < 32) count_items<TileT>(plan, p);
  __syncthreads();
}

}  // namespace switchyard::cuda::sm90a
