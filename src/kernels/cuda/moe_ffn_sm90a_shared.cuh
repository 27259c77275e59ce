// SPDX-License-Identifier: Apache-2.0
// What the roles of a block of the Hopper MoE kernel share: the rings of weights and of tokens, staging, and the queue of items.
//
//   weights  a ring of stages [kRows][64], swizzled. full: 1 arrival and the bytes that bulk copies bring; empty: 4 warps x 2 consumers
//   tokens   where they have a ring of their own, one of units of 64 tokens x 64 inputs, swizzled. A stage is as many units as the item's
//            columns need, side by side: with few columns more stages are on their way. full: kGatherThreads, of a stage's first unit;
//            empty: as above, of each unit. Else a stage has weights and tokens, and full is 1 + kGatherThreads
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_ffn_sm90a_plan.cuh"

namespace switchyard::cuda::sm90a {

template <class TileT>
struct Shared {
  alignas(1024) uint8_t weights[TileT::kStages][TileT::kWeightBytes];
  alignas(1024) uint8_t tokens[TileT::kTokenRingBytes];
  alignas(
      1024) uint8_t staging[TileT::kPanels * TileT::kStagedBytes];  ///< results on their way out
  alignas(8) uint64_t full[TileT::kStages], empty[TileT::kStages];
  uint64_t tokens_full[TileT::kApart ? TileT::kTokenUnits : 1],
      tokens_empty[TileT::kApart ? TileT::kTokenUnits : 1];
  uint64_t staged[TileT::kPanels],
      drained[TileT::kPanels];  ///< of the staging panels: all is there; all has left
  uint64_t queue_full[kQueue], queue_empty[kQueue];
  Item queue[kQueue];  ///< claimed items
  Plan plan;
};

/// A place in the ring of tokens. Where it is the weights' ring too, a stage has room for all tokens of a tile.
template <class TileT, bool kApart = TileT::kApart>
struct TokenCursor {
  RingCursor<TileT::kStages> stage;

  __device__ __forceinline__ void wait_empty(Shared<TileT>& shared, int /*units*/) {
    barrier_wait(shared_address(&shared.empty[stage.slot]), stage.parity ^ 1);
  }
  __device__ __forceinline__ void wait_full(Shared<TileT>& shared, int /*units*/) {
    barrier_wait(shared_address(&shared.full[stage.slot]), stage.parity);
  }
  __device__ __forceinline__ uint32_t full(const Shared<TileT>& shared) const {
    return shared_address(&shared.full[stage.slot]);
  }
  __device__ __forceinline__ uint32_t tokens(const Shared<TileT>& shared) const {
    return shared_address(shared.tokens) + stage.slot * TileT::kTokens * kStepBytes;
  }
  __device__ __forceinline__ void wrote(int /*units*/) { stage.advance(); }
  __device__ __forceinline__ void have_read(int /*units*/) { stage.advance(); }
};

/// The same in a ring of its own: stages of some number of units that do not go over the ring's end.
template <class TileT>
struct TokenCursor<TileT, true> {
  int unit = 0;
  uint32_t parities =
      0;  // of the units' barriers: full ones for who reads, empty ones for who writes

  /// Whoever writes: until the units are free.
  __device__ __forceinline__ void wait_empty(Shared<TileT>& shared, int units) {
    fit(units);
    for (int i = unit; i < unit + units; ++i) {
      barrier_wait(shared_address(&shared.tokens_empty[i]), parity(i) ^ 1);
    }
  }
  /// Whoever reads: until the stage is there.
  __device__ __forceinline__ void wait_full(Shared<TileT>& shared, int units) {
    fit(units);
    barrier_wait(full(shared), parity(unit));
  }
  __device__ __forceinline__ uint32_t full(const Shared<TileT>& shared) const {
    return shared_address(&shared.tokens_full[unit]);
  }
  __device__ __forceinline__ uint32_t tokens(const Shared<TileT>& shared) const {
    return shared_address(shared.tokens) + unit * kUnitBytes;
  }
  __device__ __forceinline__ void wrote(int units) {
    parities ^= ((1u << units) - 1) << unit;
    unit += units;
  }
  __device__ __forceinline__ void have_read(int units) {
    parities ^= 1u << unit;
    unit += units;
  }

 private:
  __device__ __forceinline__ void fit(int units) {
    if (unit + units > TileT::kTokenUnits) unit = 0;
  }
  __device__ __forceinline__ uint32_t parity(int of) const { return parities >> of & 1; }
};
__device__ __forceinline__ int units_of(const Item& item) {
  return parts_of(item.columns, kUnitTokens);
}

/// The next item of the queue, for one whole warp of the kQueueReaders. It stays where it is until leave_item.
template <class TileT>
__device__ __forceinline__ const Item& next_item(Shared<TileT>& shared,
                                                 const RingCursor<kQueue>& at) {
  barrier_wait(shared_address(&shared.queue_full[at.slot]), at.parity);
  return shared.queue[at.slot];
}
template <class TileT>
__device__ __forceinline__ void leave_item(Shared<TileT>& shared, RingCursor<kQueue>& at) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&shared.queue_empty[at.slot]));
  at.advance();
}
template <class TileT>
__device__ __forceinline__ Item take_item(Shared<TileT>& shared, RingCursor<kQueue>& at) {
  const Item item = next_item(shared, at);
  leave_item(shared, at);
  return item;
}

}  // namespace switchyard::cuda::sm90a
