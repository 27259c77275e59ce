// SPDX-License-Identifier: Apache-2.0
// The products of the Hopper MoE kernel: two warpgroups (consumers), each with kM64 tiles of 64 weight rows against all tokens of
// a stage, accumulators in registers. There is a loop for each number of columns, and nothing else comes in copies.
#pragma once
#include "kernels/cuda/moe_ffn_sm90a_load.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace switchyard::cuda::sm90a {

/// Which part of the block's work a consumer thread has.
struct Consumer {
  int group = threadIdx.x / 128;  ///< warpgroup
  int thread = threadIdx.x % 128;
  int warp = thread / 32, lane = thread % 32;
};

/// Accumulators of a consumer thread; an item of fewer columns uses the first of each row.
template <class TileT>
using Sums = float[TileT::kM64][TileT::kTokens / 2];

/// Frees a stage: one lane of each warp.
template <class TileT>
__device__ __forceinline__ void release(Shared<TileT>& shared, int slot, const Consumer& me) {
  if (me.lane == 0) barrier_arrive(shared_address(&shared.empty[slot]));
}

/// acc[i] += weights of tile i of this group x tokens, over the item's part of K.
template <class TileT, int kColumns>
__device__ __forceinline__ void multiply(Sums<TileT>& acc, Shared<TileT>& shared, const Item& item,
                                         RingCursor<TileT::kStages>& at, const Consumer& me) {
  constexpr int kTileBytes = 64 * kStepBytes;
  const int steps = item.steps;  // not read again in the loop
  const bool gathered = item.pass == 0;
  int previous = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, at.advance()) {
    barrier_wait(shared_address(&shared.full[at.slot]), at.parity);
    if (gathered) fence_async_shared();  // gathered tokens came by ordinary writes
    const uint32_t stage = shared_address(shared.stage[at.slot]);
    const uint64_t tokens = wgmma_operand(stage + TileT::kWeightBytes);
    const uint64_t weights = wgmma_operand(stage + me.group * TileT::kM64 * kTileBytes);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < TileT::kM64; ++i) {
        Wgmma<kColumns>::multiply_add(reinterpret_cast<float(&)[kColumns / 2]>(acc[i]),
                                      weights + i * (kTileBytes >> 4) + 2 * k, tokens + 2 * k);
      }
    }
    wgmma_commit();
    if constexpr (TileT::kEager) {
      wgmma_wait<0>();
      release(shared, at.slot, me);
    } else {
      wgmma_wait<1>();
      if (step > 0) release(shared, previous, me);
      previous = at.slot;
    }
  }
  if constexpr (!TileT::kEager) {
    wgmma_wait<0>();
    release(shared, previous, me);
  }
}

/// Picks the loop for the item's exact number of columns, which is in kLow ... kHigh.
template <class TileT, int kLow = 8, int kHigh = TileT::kTokens>
__device__ __forceinline__ void multiply_exact(Sums<TileT>& acc, Shared<TileT>& shared,
                                               const Item& item, RingCursor<TileT::kStages>& at,
                                               const Consumer& me) {
  if constexpr (kLow == kHigh) {
    multiply<TileT, kLow>(acc, shared, item, at, me);
  } else {
    constexpr int kMiddle = (kLow + kHigh) / 16 * 8;
    if (item.columns <= kMiddle) {
      multiply_exact<TileT, kLow, kMiddle>(acc, shared, item, at, me);
    } else {
      multiply_exact<TileT, kMiddle + 8, kHigh>(acc, shared, item, at, me);
    }
  }
}

}  // namespace switchyard::cuda::sm90a
