// SPDX-License-Identifier: Apache-2.0
// The single-launch layer (moe_small_sm90a.cu) before its products: sizes, shared memory, and how the products are cut.
#pragma once
#include <type_traits>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/route_token.cuh"

namespace switchyard::cuda::small_layer {

inline constexpr int kMaxTokens = 16, kMaxExperts = 256, kMostPicks = 16;
inline constexpr int kMaxRows = kMaxTokens * kMostPicks;
inline constexpr int kGroups = 4, kGroupWarps = 4, kConsumers = kGroups * kGroupWarps;
inline constexpr int kConsumerThreads = kConsumers * 32, kThreads = kConsumerThreads + 32;
inline constexpr int kStageBytes = 16384;
inline constexpr int kStageBlocks =
    kStageBytes / MoePack::kBlockBytes;  // weight blocks, one a warp
inline constexpr int kStageInputs = kStageBlocks * MoePack::kAtomInputs;
inline constexpr int kMaxStages = 3;  // of the ring of a group
inline constexpr int kMaxSharedBytes = 227 * 1024;
inline constexpr int kOutputs = MoePack::kBlockRows;  // of a piece

// Barriers of the block by number; 0 is __syncthreads.
inline constexpr int kConsumersBarrier = 1, kGroupBarrier = 2;

struct Shape {
  RouteRule rule;
  GluActivation activation = GluActivation::swiglu;
  RowBias up_bias, down_bias;
  int tokens = 0, width = 0;
  int up_blocks = 0;    // of 64 inputs: Dp / 64
  int down_blocks = 0;  // Fp / 64
  int down_share =
      0;  // weight blocks of w2 that a block of threads takes of every expert, where these are not claimed
  int piece_blocks = 0;    // of a piece that is claimed
  uint32_t side_mask = 0;  // of L2Sides
};

// Weight blocks of w2 for each block of threads: as even as can be, but where a few per cent more let runs end with the
// rows of blocks, there are fewer sums to join.
inline int down_share(int rows, int row_length, int blocks) noexcept {
  const int even = (rows * row_length + blocks - 1) / blocks;
  for (int share = even; share <= even + even / 20; ++share) {
    if (row_length % share == 0 || share % row_length == 0) return share;
  }
  return even;
}

// Weight blocks of a row of w2 to a piece that blocks of threads claim. With at least six pieces for each block the quick ones
// can take more; whole stages then. Else one round, or what comes nearest to it.
inline int piece_blocks(int rows, int row_length, int blocks) noexcept {
  const auto in_row = [&](int piece) { return (row_length + piece - 1) / piece; };
  for (int piece = row_length / 8 * 8; piece >= 8; piece -= 4) {
    if (rows * in_row(piece) >= 6 * blocks) return (row_length + in_row(piece) - 1) / in_row(piece);
  }
  int best = row_length, least = 1 << 30;
  for (int cut = 1; cut <= row_length; ++cut) {
    const int piece = in_row(cut), rounds = (rows * in_row(piece) + blocks - 1) / blocks;
    if (rounds * piece < least) {
      least = rounds * piece;
      best = piece;
    }
  }
  return best;
}

/// Without biases.
inline Shape shape_of(const MoeFfn::Problem& problem, int64_t tokens, int blocks) noexcept {
  Shape shape;
  shape.rule = problem.rule;
  shape.activation = problem.activation;
  shape.tokens = static_cast<int>(tokens);
  shape.width = static_cast<int>(problem.width);
  shape.up_blocks = static_cast<int>(MoePack::padded(problem.width) / 64);
  shape.down_blocks = static_cast<int>(MoePack::padded(problem.ffn_width) / 64);
  if (blocks > 0) {
    shape.down_share = down_share(shape.up_blocks * 2, shape.down_blocks, blocks);
    shape.piece_blocks = piece_blocks(shape.up_blocks * 2, shape.down_blocks, blocks);
  }
  return shape;
}

// The rings' barriers, and the routing of at most kExperts experts and kRows rows.
template <int kExperts, int kRows>
struct SharedOf {
  uint64_t full[kGroups * kMaxStages], empty[kGroups * kMaxStages];
  uint32_t tokens[kExperts];  // bit t: token t picked the expert
  int first_row[kExperts];
  int num_hit;
  int hit_expert[kExperts], hit_row[kExperts + 1];
  int row_token[kRows];
  int pick_expert[kRows], pick_row[kRows];
  float pick_weight[kRows];
};
using Shared = SharedOf<kMaxExperts, kMaxRows>;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }

// ---- the plan of a block: both products as rows of stages

struct Work {
  int tiles;  // items of one hit
  int items;  // of w13: (hit, 16 hidden columns); claimed here, and dealt in turn by the persistent step
  int item_stages;
  int down_begin, down_end;  // weight blocks of w2, counted through all its rows of blocks

  Work() = default;
  __device__ Work(const Shape& shape, int hits) {
    tiles = shape.down_blocks * 4;
    items = hits * tiles;
    item_stages = (shape.up_blocks + kStageBlocks - 1) / kStageBlocks;
    const int all = shape.up_blocks * 2 * shape.down_blocks;
    down_begin = min(all, static_cast<int>(blockIdx.x) * shape.down_share);
    down_end = min(all, down_begin + shape.down_share);
  }
};

// ---- the down product of a block as pieces

// 32 outputs x a run of inputs.
struct Piece {
  int row_block;      // outputs [row_block * 32, ...)
  int begin, blocks;  // weight blocks of 64 inputs
  int stages;         // of one hit
  bool split;         // a hit's stages go round the groups; else they are one group's

  __device__ Piece(const Shape& shape, const Work& work, int at)
      : Piece(shape, at / shape.down_blocks, at % shape.down_blocks, work.down_end - at) {}
  // Piece `number` of those that are claimed.
  __device__ Piece(const Shape& shape, int number)
      : Piece(shape, number / pieces_in_row(shape),
              number % pieces_in_row(shape) * shape.piece_blocks, shape.piece_blocks) {}
  // The same, part `part` of those of a row.
  __device__ static Piece part_of(const Shape& shape, int row, int part) {
    return Piece(shape, row, part * shape.piece_blocks, shape.piece_blocks);
  }
  __device__ static int pieces_in_row(const Shape& shape) {
    return (shape.down_blocks + shape.piece_blocks - 1) / shape.piece_blocks;
  }

 private:
  __device__ Piece(const Shape& shape, int row, int from, int most) : row_block(row), begin(from) {
    blocks = min(shape.down_blocks - begin, most);
    stages = (blocks + kStageBlocks - 1) / kStageBlocks;
    split = stages >= kGroups;
  }
};

// bulk_copy of bytes that will not be read again soon: in the L2 they give way before others.
__device__ __forceinline__ void bulk_copy_once(uint32_t to, const void* from, uint32_t bytes,
                                               uint32_t barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

}  // namespace switchyard::cuda::small_layer
