// SPDX-License-Identifier: Apache-2.0
// The loading roles of the Hopper MoE kernel: one warp claims items and streams weights, three warps bring tokens. They
// run ahead of the consumers by the depth of the ring.
//
//   stage  [kRows][64] weights, [kTokens][64] tokens, both swizzled
//   full   1 arrival for weights + kGatherThreads for tokens, plus the bytes that bulk copies bring
//   empty  4 warps x 2 consumers
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_ffn_sm90a_plan.cuh"
#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda::sm90a {

template <class TileT>
struct Shared {
  alignas(1024) uint8_t stage[TileT::kStages][TileT::kStageBytes];
  alignas(1024) uint8_t staging[TileT::kPanels * TileT::kTokenBytes];  ///< results on their way out
  alignas(8) uint64_t full[TileT::kStages], empty[TileT::kStages];
  uint64_t drained[TileT::kPanels];  ///< 1 arrival: the staging panel has left
  uint64_t queue_full[kQueue], queue_empty[kQueue];
  uint64_t ahead;      ///< 1 arrival: the first consumer has its lead
  Item queue[kQueue];  ///< claimed items
  uint32_t staged;     ///< arrivals at the shared panel
  Plan plan;
};

/// The next item of the queue, for one whole warp of the kQueueReaders; false at the end.
template <class TileT>
__device__ __forceinline__ bool next_item(Shared<TileT>& shared, RingCursor<kQueue>& at,
                                          Item& item) {
  barrier_wait(shared_address(&shared.queue_full[at.slot]), at.parity);
  item = shared.queue[at.slot];
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&shared.queue_empty[at.slot]));
  at.advance();
  return item.steps > 0;
}

/// Whole warp: lane l streams the l-th 32-row strip of the item. The next item is claimed meanwhile: late, so that no block holds
/// a long item back, but early enough for the answer. Returns the claim in lane 0.
template <class TileT>
__device__ __forceinline__ int stream_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                           const Item& item, RingCursor<TileT::kStages>& at) {
  constexpr int kBlockRows = MoePack::kBlockRows, kBlockBytes = MoePack::kBlockBytes;
  constexpr int kCopies = TileT::kRows / kBlockRows;
  const int lane = threadIdx.x % 32;
  const int64_t expert_rows = item.pass == 0 ? 2 * p.ffn_width : p.width;
  const int64_t row = item.expert * expert_rows + item.block * TileT::kRows + lane * kBlockRows;
  const char* source = reinterpret_cast<const char*>(item.pass == 0 ? p.w13 : p.w2) +
                       row / kBlockRows * item.steps * kBlockBytes;
  const int claim_step = max(item.steps - kClaimSteps, 0);
  const uint64_t policy = evict_first();
  int claimed = 0;
#pragma unroll 1
  for (int step = 0; step < item.steps; ++step, at.advance(), source += kBlockBytes) {
    if (step == claim_step && lane == 0) claimed = atomicAdd(&p.sync[kSyncClaimed], 1);
    barrier_wait(shared_address(&shared.empty[at.slot]), at.parity ^ 1);
    const uint32_t full = shared_address(&shared.full[at.slot]);
    if (lane == 0) barrier_arrive_expect(full, TileT::kWeightBytes);
    __syncwarp();
    if (lane < kCopies) {
      const uint32_t to = shared_address(shared.stage[at.slot]) + lane * kBlockBytes;
      if (p.reads_once) {
        bulk_copy(to, source, kBlockBytes, full, policy);
      } else {
        bulk_copy(to, source, kBlockBytes, full);
      }
    }
  }
  return claimed;
}

/// One warp: claims items, tells the others, and streams their weights.
template <class TileT>
__device__ __forceinline__ void claim_and_stream(Shared<TileT>& shared, const MoeFfnParams& p) {
  const int lane = threadIdx.x % 32;
  Walk<TileT> walk(shared.plan, p);
  RingCursor<kQueue> queue;
  RingCursor<TileT::kStages> at;
  const int num_items = walk.num_items();
  int index = blockIdx.x;
  while (true) {
    barrier_wait(shared_address(&shared.queue_empty[queue.slot]), queue.parity ^ 1);
    const Item item = index < num_items ? walk.at(index) : Item{};
    if (lane == 0) {
      shared.queue[queue.slot] = item;
      barrier_arrive(shared_address(&shared.queue_full[queue.slot]));
    }
    queue.advance();
    if (item.steps == 0) return;
    const int claimed = stream_item(shared, p, item, at);
    index = static_cast<int>(gridDim.x) + __shfl_sync(~0u, claimed, 0);
  }
}

/// Pass 1: three warps copy the rows of x that the tile's tokens name, 16 bytes a thread, 12 rows at a time.
template <class TileT>
__device__ __forceinline__ void gather_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                            const Item& item, RingCursor<TileT::kStages>& at) {
  constexpr int kRowsAtOnce = kGatherThreads / 8;
  constexpr int kTurns = (TileT::kTokens + kRowsAtOnce - 1) / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 4, "the swizzle of every other turn differs by 4 chunks");
  const int thread = threadIdx.x % 128 - 32, chunk = thread % 8, first = thread / 8;
  const int32_t* tokens = p.row_token + shared.plan.row_begin[item.expert] + item.row;
  uint32_t start[kTurns];  // of this thread's rows in x, in units of 16 bytes
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int row = i * kRowsAtOnce + first;
    start[i] = row < item.valid ? static_cast<uint32_t>(tokens[row]) * (p.width / 8) + chunk : 0;
  }
  const int turns = (item.valid - first + kRowsAtOnce - 1) / kRowsAtOnce;
  const uint32_t inside = TileT::kWeightBytes + first * kStepBytes + ((chunk ^ (first & 7)) * 16);
  const uint4* x = reinterpret_cast<const uint4*>(p.x);
#pragma unroll 1
  for (int step = 0; step < item.steps; ++step, at.advance(), x += kStepBytes / 16) {
    barrier_wait(shared_address(&shared.empty[at.slot]), at.parity ^ 1);
    const uint32_t even = shared_address(shared.stage[at.slot]) + inside, odd = even ^ 64;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      if (i < turns) {
        copy_16((i % 2 == 0 ? even : odd) + i * kRowsAtOnce * kStepBytes, x + start[i]);
      }
    }
    barrier_arrive_after_copies(shared_address(&shared.full[at.slot]));
  }
}

/// Waits until pass 1 of all experts that share this expert's counter is done.
template <class TileT>
__device__ __forceinline__ void wait_for_hidden(const Shared<TileT>& shared, const MoeFfnParams& p,
                                                int expert) {
  const int run = (p.experts + kSyncGroups - 1) / kSyncGroups;
  const int first = expert / run * run, last = min(first + run, p.experts);
  int tiles = 0;
  for (int e = first; e < last; ++e) tiles += parts_of(shared.plan.rows_of(e), TileT::kTokens);
  const int panels = tiles * (p.ffn_width / 64);
  while (load_acquire(&p.sync[expert / run]) < panels) __nanosleep(32);
  fence_async_global();
}

/// Pass 2, one thread: the tokens of a stage are one contiguous copy out of a hidden panel.
template <class TileT>
__device__ __forceinline__ void load_hidden_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                                 const Item& item, RingCursor<TileT::kStages>& at) {
  const uint32_t bytes = item.columns * kStepBytes;
  const __nv_bfloat16* source =
      p.hidden + static_cast<int64_t>(shared.plan.hidden_row(item.expert) + item.row) * kStepInputs;
  const int64_t panel = static_cast<int64_t>(p.hidden_rows) * kStepInputs;
#pragma unroll 1
  for (int step = 0; step < item.steps; ++step, at.advance(), source += panel) {
    barrier_wait(shared_address(&shared.empty[at.slot]), at.parity ^ 1);
    const uint32_t full = shared_address(&shared.full[at.slot]);
    barrier_expect(full, bytes);
    bulk_copy(shared_address(shared.stage[at.slot]) + TileT::kWeightBytes, source, bytes, full);
    barrier_arrive(full, kGatherThreads);
  }
}

/// Three warps.
template <class TileT>
__device__ __forceinline__ void load_tokens(Shared<TileT>& shared, const MoeFfnParams& p) {
  RingCursor<kQueue> queue;
  RingCursor<TileT::kStages> at;
  int ready = -1;
  for (Item item; next_item(shared, queue, item);) {
    if (item.pass == 0) {
      gather_item(shared, p, item, at);
    } else if (threadIdx.x % 128 == 32) {
      if (item.expert != ready) wait_for_hidden(shared, p, item.expert);
      ready = item.expert;
      load_hidden_item(shared, p, item, at);
    }
    __syncwarp();
  }
}

}  // namespace switchyard::cuda::sm90a
