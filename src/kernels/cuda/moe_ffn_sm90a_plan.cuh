// SPDX-License-Identifier: Apache-2.0
// What the blocks of the Hopper MoE kernel work on, and in which order.
//
//   item   weight rows [kRows] x tokens [8 ... kTokens] of one expert, over the whole of K
//   pass 1 gate and up (2F rows, K = D)  -> hidden;   pass 2 down (D rows, K = F) -> rows
//   chunk  of an item of pass 2: a part of K. Where items are few and long (few, wide experts), a last wave of few would leave most
//          blocks idle; who takes the next chunk starts from the sums of the one before
//   order  all items of pass 1, then all of pass 2, chunk by chunk; inside by expert, then groups of kTileGroup token tiles, then
//          weight block, then token tile: blocks that run at the same time share weights and tokens in L2
//   lists  of a pass there are two where the sides of the L2 are known (ops/l2_sides.h): weight blocks of 256 rows lie on side 0 and 1 by
//          turns, and a block takes those of its own side while there are any
// A block claims its next item from the list's counter: blocks that become free together then work side by side in the list,
// and what they share is still in L2 (with fixed strides they drift apart, and half of L2's hits are lost). It claims late, so
// that none is left with two long items where others have none. The tokens of an expert are split evenly into tiles; a tile is
// rounded up to 8 tokens, nothing else is padded.
// The order of K is the same for every item, in chunks or not: a token's bits do not depend on its tile.
#pragma once
#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda::sm90a {

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
  int passes;  ///< 2; 1: the hidden rows are all
  GluActivation activation;
  GluCurve curve;
  RowBias up_bias, down_bias;
  bool biased;
  float* carry;  ///< sums of chunks, [carry_rows][D] in an order of their own; rows as in hidden
  int carry_rows;
  bool asks_ahead;  ///< most experts have rows: weights are asked for before the routing is known
};

constexpr int kMaxExperts = 384;
constexpr int kSyncGroups = 64;  ///< counters of finished pass 1 panels, each for a run of experts
constexpr int kSyncCarried = kSyncGroups;  ///< as many: of chunks in pass 2
constexpr int kSyncLeft = 2 * kSyncGroups,
              kSyncClaimed = kSyncLeft + 1;  ///< blocks that are done; items given out of each list
constexpr int kLists = 4;                    ///< of items: 2 * pass + side of the L2
constexpr int kSyncWords = kSyncClaimed + kLists;
constexpr int kFirstSync = 768;  ///< of MoeFfn::Args::sync: between the words of the single launch
constexpr int kStepInputs = 64;  ///< K of a stage: one swizzle row
constexpr int kStepBytes = 128;
constexpr int kNumConsumers = 2;  ///< warpgroups
constexpr int kGatherThreads = 64;
constexpr int kThreads = 128 * (kNumConsumers + 1);
constexpr int kAheadBytes = 192 * 1024;  ///< of a block; all blocks' must leave room in the L2
constexpr int kQueue = 4;                ///< items that a block may have under way
constexpr int kClaimSteps =
    8;  ///< before an item's last stage: the answer takes some us under load
constexpr int kLeastChunkSteps = 32;                                        ///< of pass 2
constexpr int kQueueReaders = 4 * kNumConsumers + kGatherThreads / 32 + 1;  ///< warps

/// A tile configuration. kM64: 64-row weight tiles of one consumer.
template <int kM64_, int kTokens_, int kStages_>
struct Tile {
  static constexpr int kM64 = kM64_, kTokens = kTokens_, kStages = kStages_;
  /// Stages are awaited, so that each is freed as soon as it is multiplied, at the price of a pause between products: where there are few.
  static constexpr bool kEager = kStages <= 4;
  /// Sums that are read keep the compiler from overlapping products, and only stages that are awaited do without that.
  static constexpr bool kChunks = kEager;
  /// Weights that several tiles read stay in the L2. With few tokens hardly any are, and to ask costs 2 %.
  static constexpr bool kKeepsShared = kTokens > 64;
  static constexpr int kRows = 64 * kM64 * kNumConsumers;
  static constexpr int kWeightBytes = kRows * kStepBytes;
  static constexpr int kTokenBytes = kTokens * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
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
  int32_t tiles, chunks;  ///< of all experts; of K in pass 2

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

/// In how many chunks of K pass 2 is done, so that few, long items do not end in a wave of few. Costs are thousandths of an item's
/// time; all chunks of an item take as long as the item.
__device__ __forceinline__ int chunks_of(const MoeFfnParams& p, int items, int rows) {
  constexpr int kFewWaves = 3, kMostChunks = 4, kWhole = 1000, kCarryCost = 40;
  const int steps = p.ffn_width / kStepInputs, blocks = static_cast<int>(gridDim.x);
  const int most = rows > p.carry_rows ? 1 : min(kMostChunks, steps / kLeastChunkSteps);
  int chunks = 1, least = parts_of(items, blocks) * kWhole;
  for (int other = 2; other <= most && items <= kFewWaves * blocks; ++other) {
    const int waves = max(parts_of(items * other, blocks), other);
    const int cost = waves * kWhole / other + kCarryCost * (other - 1);
    if (cost >= least) continue;
    least = cost;
    chunks = other;
  }
  return chunks;
}

struct alignas(16) Item {
  int expert, block;  ///< block: of kRows weight rows
  int row, valid,
      columns;  ///< first token of the tile inside the expert; real tokens; rounded up to 8
  int first_step, steps;  ///< of K / kStepInputs; no steps end the list
  int8_t pass, chunk;     ///< chunk: of pass 2
  bool shared;            ///< other items have the same weights
  bool last;              ///< no chunk follows
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
  plan.chunks = !TileT::kChunks ? 1 : chunks_of(p, tiles * (p.width / TileT::kRows), rows);
}

/// Filled by all threads.
template <class TileT>
__device__ void make_plan(Plan& plan, const MoeFfnParams& p) {
  for (int e = threadIdx.x; e <= p.experts; e += kThreads) plan.row_begin[e] = p.slot_offset[e];
  __syncthreads();
  if (threadIdx.x < 32) count_items<TileT>(plan, p);
  __syncthreads();
}

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
        steps_{p.width / kStepInputs, p.ffn_width / kStepInputs},
        in_chunk_(plan.tiles * blocks_[1]) {}

  __device__ __forceinline__ int num_items(int list) const {
    if (list % 2 >= sides_ || list / 2 >= passes_) return 0;
    return list < 2 ? plan_.tiles * blocks_[0] : plan_.chunks * in_chunk_;
  }

  __device__ __forceinline__ Item at(int list, int index) {
    Item item{};
    item.pass = list / 2;
    item.steps = item.pass == 0 ? steps_[0] : steps_[1];
    if (item.pass == 1 && plan_.chunks > 1) {
      item.chunk = index / in_chunk_;
      index -= item.chunk * in_chunk_;
      item.first_step = steps_[1] * item.chunk / plan_.chunks;
      item.steps = steps_[1] * (item.chunk + 1) / plan_.chunks - item.first_step;
    }
    item.last = item.pass == 0 || item.chunk == plan_.chunks - 1;
    const int part = list + kLists * item.chunk;
    if (part != part_) first_ = before_ = 0;
    part_ = part;
    find(item, index, item.pass == 0 ? blocks_[0] : blocks_[1]);
    if (sides_ > 1) {
      constexpr int kTogether = MoePack::kGroupStrips * MoePack::kBlockRows / 2 / TileT::kRows;
      item.block += (item.block / kTogether + list % 2) * kTogether;
    }
    return item;
  }

 private:
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
    const int rows = plan_.rows_of(item.expert);
    const int group = local / (TileT::kTileGroup * blocks);
    const int inside = local - group * TileT::kTileGroup * blocks;
    const int group_tiles = min(TileT::kTileGroup, tiles - group * TileT::kTileGroup);
    item.block = inside / group_tiles;
    const int tile = group * TileT::kTileGroup + inside - item.block * group_tiles;
    const int height = rounded_to_8(parts_of(rows, tiles));
    item.row = tile * height;
    item.valid = min(height, rows - item.row);
    item.columns = rounded_to_8(item.valid);
    item.shared = tiles > 1;
  }

  const Plan& plan_;
  const int experts_, passes_, sides_;
  const int blocks_[2], steps_[2];  // of a side; of K
  const int in_chunk_;              // items of a side
  int part_ = 0;                    // list and chunk of the item before
  int first_ = 0,
      before_ = 0;  // of the experts that were looked at: the first, and tiles of those before it
};

}  // namespace switchyard::cuda::sm90a
