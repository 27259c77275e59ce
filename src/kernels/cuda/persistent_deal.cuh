// SPDX-License-Identifier: Apache-2.0
// Which of the experts' weights each block of the persistent step reads. Blocks have ranks for it. Where weights are placed by the sides
// of the L2 (ops/l2_sides.h), those near side 0 have even ranks and those near side 1 odd ones, and halves of pairs of strips
// (ops/moe_pack.h) are dealt by the parity of ranks, so that most blocks read the side that they are near. Sums are of the same numbers
// in the same order whichever block has which rank, and with sides or without.
//
//   up     item t of a pick is half t % 2 of its pair of strips t / 2; their number is even, and they are dealt in turn
//   down   the strips that are first halves, one behind the other, are cut into equal runs for the even ranks; second halves for the odd
#pragma once
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

/// Of item `tile` of a pick's `tiles`.
__device__ __forceinline__ int strip_of_item(const Shape& shape, int tile, int tiles) {
  return shape.side_mask == 0 ? tile : MoePack::strip_of(tile / 2, tile % 2, tiles);
}
/// Of row `row` of blocks of the down product, as this block counts them.
__device__ __forceinline__ int strip_of_row(const Plan& plan, const Block& block, int row) {
  return plan.down_by_sides ? MoePack::strip_of(row, block.rank % 2, plan.shape.up_blocks * 2)
                            : row;
}

/// By counting, so that ranks are all different whatever multiprocessors the blocks run on. Those of a side that has more than half of
/// the blocks take what the other one leaves, from the last rank on.
__device__ __forceinline__ int claim_rank(const L2Sides& sides, Events& events) {
  if (sides.mask == 0) return static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x), side = side_of_this_block(sides);
  const int turn = static_cast<int>(atomicAdd(&events.ranks[side].count, 1u));
  const int own = (blocks + 1 - side) / 2, others = blocks - own;
  return turn < own ? 2 * turn + side : 2 * (others - 1 - (turn - own)) + (1 - side);
}

// Sums of runs follow each other, each a part in every row that it touches: part i of row j is at i + j. By sides, those of second halves
// are behind those of first ones.
__device__ __forceinline__ int first_part_of_half(const Plan& plan, int half) {
  return half * ((static_cast<int>(gridDim.x) + 1) / 2 + plan.shape.up_blocks);
}
/// The parts that sum up to a strip's outputs.
__device__ __forceinline__ PartRange parts_of(const Plan& plan, int strip) {
  const Shape& shape = plan.shape;
  int row = strip, from = 0;
  if (plan.down_by_sides) {
    row = MoePack::pair_of(strip, shape.up_blocks * 2);
    from = first_part_of_half(plan, MoePack::half_of(strip, shape.up_blocks * 2));
  }
  const int first = row * shape.down_blocks, last = first + shape.down_blocks - 1;
  return {static_cast<uint16_t>(from + row + first / shape.down_share),
          static_cast<uint16_t>(from + row + last / shape.down_share)};
}

/// One thread, once what the step before has counted is gone.
__device__ __forceinline__ void deal_experts(const L2Sides& sides, const Plan& plan, Block& block) {
  const Shape& shape = plan.shape;
  const int rank = claim_rank(sides, *block.events), halves = plan.down_by_sides ? 2 : 1;
  const int run = rank / halves, all = shape.up_blocks * 2 / halves * shape.down_blocks;
  block.rank = rank;
  block.first_part = first_part_of_half(plan, rank % halves) + run;
  block.work.down_begin = min(all, run * shape.down_share);
  block.work.down_end = min(all, block.work.down_begin + shape.down_share);
}

}  // namespace switchyard::cuda::persistent
