// SPDX-License-Identifier: Apache-2.0
// Weights asked for (into the L2) before it is known which experts have tokens: norm, gate and routing leave the memory idle, and of
// some hundred tokens nearly every expert has some. What the L2 has when the experts begin need not come from memory then.
//
//   share    the first 192 KiB of an item of pass 1, if each expert has one tile of tokens; as many as blocks
//   own      where most blocks begin before routing ends, each asks for the share that it is likely to read
//   taken    where the gate's launch leaves few multiprocessors, the few blocks that begin early ask for all shares, of their own side of the
//            L2 where weights are placed by sides. The gate's blocks ask for whole experts then (moe_entries.h, first_weights)
// All this may happen before earlier launches have ended, counters included. That is right for advice: weights that are asked for twice, or
// never, change no result.
#pragma once
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/moe_ffn_sm90a_list.cuh"

namespace switchyard::cuda::sm90a {

constexpr int kAheadBytes = 192 * 1024;  ///< of a share; all must leave room in the L2
constexpr int kAheadAtOnce = 2;          ///< shares that are taken

/// One warp, a lane for each strip of the `count` shares from `first` on. Side: of the L2, or 0 where shares are in the order of memory.
template <class TileT>
__device__ __forceinline__ void ask_for_strips(const MoeFfnParams& p, int first, int count,
                                               bool by_sides, int side) {
  constexpr int kStrips = TileT::kRows / MoePack::kBlockRows;
  constexpr int kSteps = kAheadBytes / kStrips / MoePack::kBlockBytes;
  const auto lane = threadIdx.x % 32, strips = static_cast<unsigned>(2 * p.ffn_width) / 32;
  const unsigned number = first * kStrips + lane;
  const unsigned strip = by_sides ? MoePack::on_side<1>(number, side) : number;
  const unsigned expert = strip / strips;
  if (lane >= static_cast<unsigned>(count * kStrips) || expert >= p.experts) return;
  const PackedStrip packed(p.w13, expert, static_cast<int>(strip - expert * strips),
                           2 * p.ffn_width, p.width, p.sides.mask);
  const int steps = min(kSteps, p.width / kStepInputs);
  if (by_sides) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) ask_for(packed.block(step), MoePack::kBlockBytes);
    return;
  }
  // Pairs belong to two strips; each asks for half of both.
  const bool pairs = p.sides.mask != 0;
  const int begin = packed.half() * (steps / 2);
  const int end = pairs && packed.half() == 0 ? steps / 2 : steps;
  if (end > begin) ask_for(packed.step(begin), (end - begin) * packed.step_bytes());
}

/// One warp takes shares and asks for them while there are any. Not inlined: it is long, and few launches call it.
template <class TileT>
__device__ __noinline__ void take_shares(const MoeFfnParams& p) {
  const bool by_sides = has_sides(p);
  const int side = by_sides ? side_of_this_block(p.sides) : 0;
  const int shares = static_cast<int>(gridDim.x) >> (by_sides ? 1 : 0);
  const auto take = [&] {
    return threadIdx.x % 32 == 0 ? atomicAdd(&p.sync[kSyncAhead + side], kAheadAtOnce) : 0;
  };
#pragma unroll 1
  for (int taken = take();;) {
    const int first = __shfl_sync(kAllLanes, taken, 0);
    if (first >= shares) return;
    taken = take();  // the answer comes meanwhile
    ask_for_strips<TileT>(p, first, min(kAheadAtOnce, shares - first), by_sides, side);
  }
}

/// Whole block.
template <class TileT>
__device__ __forceinline__ void ask_ahead(const MoeFfnParams& p) {
  if (p.ahead == Ahead::own && threadIdx.x < 32) {
    ask_for_strips<TileT>(p, static_cast<int>(blockIdx.x), 1, false, 0);
  }
  if (p.ahead == Ahead::taken && threadIdx.x / 32 == kThreads / 32 - 1) take_shares<TileT>(p);
}

}  // namespace switchyard::cuda::sm90a
