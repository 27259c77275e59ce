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

/// Where a consumer reads.
template <class TileT>
struct Reading {
  RingCursor<TileT::kStages> weights;
  TokenCursor<TileT> tokens;

  __device__ __forceinline__ int stage() const {
    if constexpr (TileT::kApart) {
      return weights.slot;
    } else {
      return tokens.stage.slot;
    }
  }
  __device__ __forceinline__ void wait(Shared<TileT>& shared, int units) {
    tokens.wait_full(shared, units);
    if (TileT::kApart) barrier_wait(shared_address(&shared.full[weights.slot]), weights.parity);
  }
  __device__ __forceinline__ void advance(int units) {
    tokens.have_read(units);
    if (TileT::kApart) weights.advance();
  }
};

/// Frees a stage, or a stage of weights and the units of tokens that went with it: a lane of each warp for each.
template <class TileT>
__device__ __forceinline__ void release(Shared<TileT>& shared, const Reading<TileT>& read,
                                        int units, const Consumer& me) {
  const uint32_t stage = shared_address(&shared.empty[read.stage()]);
  if constexpr (TileT::kApart) {
    const uint32_t first = shared_address(&shared.tokens_empty[read.tokens.unit]);
    if (me.lane <= units) barrier_arrive(me.lane == 0 ? stage : first + (me.lane - 1) * 8);
  } else {
    if (me.lane == 0) barrier_arrive(stage);
  }
}

/// acc[i] += weights of tile i of this group x tokens, over the item's part of K.
template <class TileT, int kColumns>
__device__ __forceinline__ void multiply(Sums<TileT>& acc, Shared<TileT>& shared, const Item& item,
                                         Reading<TileT>& at, const Consumer& me) {
  constexpr int kUnits = (kColumns + kUnitTokens - 1) / kUnitTokens;
  constexpr int kTileBytes = 64 * kStepBytes;
  const int steps = item.steps;  // not read again in the loop
  const bool gathered = item.pass == 0;
  Reading<TileT> previous;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, at.advance(kUnits)) {
    at.wait(shared, kUnits);
    if (gathered) fence_async_shared();  // gathered tokens came by ordinary writes
    const uint64_t tokens = wgmma_operand(at.tokens.tokens(shared));
    const uint64_t weights = wgmma_operand(shared_address(shared.weights[at.stage()]) +
                                           me.group * TileT::kM64 * kTileBytes);
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
      release(shared, at, kUnits, me);
    } else {
      wgmma_wait<1>();
      if (step > 0) release(shared, previous, kUnits, me);
      previous = at;
    }
  }
  if constexpr (!TileT::kEager) {
    wgmma_wait<0>();
    release(shared, previous, kUnits, me);
  }
}

/// Picks the loop for the item's exact number of columns, which is in kLow ... kHigh.
template <class TileT, int kLow = 8, int kHigh = TileT::kTokens>
__device__ __forceinline__ void multiply_exact(Sums<TileT>& acc, Shared<TileT>& shared,
                                               const Item& item, Reading<TileT>& at,
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
