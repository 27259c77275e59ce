// SPDX-License-Identifier: Apache-2.0
// The loading roles of decode attention on Hopper: the scout claims items and finds their rows, which takes some round trips to memory;
// the producer passes them on with their queries, and keeps the rings full, over the borders of items.
//
//   ring       units of a group of consumers, in order: K then V, each [64 positions][Z], swizzled (tensor_copy.cuh)
//   box        what one copy brings: 64 positions, or 16 where the cache's blocks are no multiple of 64
#pragma once
#include "kernels/cuda/attention_decode_unit.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_copy.cuh"

namespace switchyard::cuda {

inline constexpr int kDecodeGroups = 2;
inline constexpr int kDecodeWarps = kDecodeGroups * kUnitTiles;  ///< that consume
inline constexpr int kMergeWarps = 2;
inline constexpr int kFinishGroups = 2, kFinishWarps = 2;  ///< groups of so many warps
inline constexpr int kDecodeQueue = 2, kDecodeStates = 2;
inline constexpr int kShortGroups = 4;  ///< of four warps, that take short sequences

template <int kZ>
inline constexpr int kUnitBytes = kUnit* kZ * 2;  ///< of K, and of V

template <int kZ>
struct DecodeShared {
  using States = SharedStates<kZ, kDecodeGroups, kUnitTiles>;
  static constexpr int kStages = 256 / kZ;         // of each group's ring
  static constexpr int kQueryBytes = kZ * 2 + 16;  // of a head; padded against bank conflicts
  // What is before `exchange` are the rings of short sequences first: 12 KiB for a warp that shares its item, else 24.
  alignas(1024) unsigned char ring[kDecodeGroups][kStages][2 * kUnitBytes<kZ>];
  States states[kDecodeStates];
  alignas(16) unsigned char spare[64 * 1024 - kDecodeStates * sizeof(States)];
  UnitExchange exchange[kShortGroups];
  alignas(16) unsigned char queries[kDecodeQueue][kTileHeads][kQueryBytes];
  DecodeItem queue[kDecodeQueue];
  alignas(8) uint64_t full[kDecodeGroups][kStages], empty[kDecodeGroups][kStages];
  uint64_t queue_full[kDecodeQueue], queue_empty[kDecodeQueue];
  uint64_t states_full[kDecodeStates], states_empty[kDecodeStates];
  // Items that are written, for the groups of finishers in turn.
  DecodeItem written[kFinishGroups];
  bool is_last[kFinishGroups];
  alignas(8) uint64_t written_full[kFinishGroups], written_empty[kFinishGroups];
  ItemCounts pieces;
  // The scout's word to the producer: an item, and the rows of its boxes.
  DecodeItem next;
  int next_row[kWarp];
  alignas(8) uint64_t next_full, next_empty;
};

/// Boxes of kBox positions: 64, or 16 where the cache's blocks are no multiple of 64.
struct DecodeMaps {
  CUtensorMap k, v;
};

template <int kZ>
__device__ __forceinline__ void init_barriers(DecodeShared<kZ>& shared) {
  for (int g = 0; g < kDecodeGroups; ++g) {
    for (int i = 0; i < DecodeShared<kZ>::kStages; ++i) {
      barrier_init(shared_address(&shared.full[g][i]), 1);
      barrier_init(shared_address(&shared.empty[g][i]), kUnitTiles);
    }
  }
  for (int i = 0; i < kDecodeQueue; ++i) {
    barrier_init(shared_address(&shared.queue_full[i]), kWarp + 1);
    barrier_init(shared_address(&shared.queue_empty[i]), kDecodeWarps);
  }
  for (int i = 0; i < kDecodeStates; ++i) {
    barrier_init(shared_address(&shared.states_full[i]), kDecodeWarps);
    barrier_init(shared_address(&shared.states_empty[i]), kMergeWarps);
  }
  for (int i = 0; i < kFinishGroups; ++i) {
    barrier_init(shared_address(&shared.written_full[i]), kMergeWarps);
    barrier_init(shared_address(&shared.written_empty[i]), kFinishWarps);
  }
  barrier_init(shared_address(&shared.next_full), 1);
  barrier_init(shared_address(&shared.next_empty), 1);
  barrier_init_done();
}

// ---- the scout warp

/// Lane i finds the row of the item's i-th box; -1: there is none, or the token sees none of it.
template <int kBox>
__device__ __forceinline__ int find_row(const Attend& a, const DecodeItem& item) {
  const int lane = threadIdx.x % kWarp, position = item.unit * kUnit + lane * kBox;
  const bool real = lane < item.units * (kUnit / kBox) && item.sees(position, kBox);
  return real ? cache_row(a, item.sequence, item.kv_head, position) : -1;
}

/// The first piece depends on the step's arrays alone; the next one is claimed when the producer takes its last span.
template <int kZ, int kBox>
__device__ __forceinline__ void scout(DecodeShared<kZ>& shared, const Attend& a,
                                      const Pieces& pieces) {
  static_assert(kSpanUnits * kUnit / kBox <= kWarp);
  const int lane = threadIdx.x % kWarp, blocks = static_cast<int>(gridDim.x);
  const bool claims = num_pieces(a, pieces) > blocks;
  int index = static_cast<int>(blockIdx.x);
  DecodeItem item = find_decode_item(a, pieces, index);
  for (uint32_t parity = 0;; parity ^= 1) {
    shared.next_row[lane] = find_row<kBox>(a, item);
    if (lane == 0) shared.next = item;
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.next_full));
    if (index < blocks) wait_for_previous();
    if (item.units == 0) {
      if (lane == 0 && claims) leave_claims(decode_claims(a));
      return;
    }
    barrier_wait(shared_address(&shared.next_empty), parity);
    if (!item.ends) {
      enter_span(a, item.span + 1, pieces.spans, item);
      continue;
    }
    int claimed = 0;
    if (lane == 0 && claims) claimed = atomicAdd(&decode_claims(a)->next, 1);
    index = blocks + __shfl_sync(kAllLanes, claimed, 0);
    item = find_decode_item(a, pieces, index);
  }
}

// ---- the producer warp

template <int kZ>
__device__ __forceinline__ void send_item(DecodeShared<kZ>& shared, const Attend& a,
                                          const DecodeItem& item,
                                          const RingCursor<kDecodeQueue>& at) {
  constexpr int kChunks = kZ / 8;
  const int lane = threadIdx.x % kWarp;
  const uint32_t full = shared_address(&shared.queue_full[at.slot]);
  barrier_wait(shared_address(&shared.queue_empty[at.slot]), at.parity ^ 1);
  const auto* q = static_cast<const bf16*>(a.q) + first_head(a, item) * kZ;
  for (int i = lane; i < item.heads * kChunks; i += kWarp) {
    copy_16(shared_address(&shared.queries[at.slot][i / kChunks][i % kChunks * 16]), q + i * 8);
  }
  barrier_arrive_after_copies(full);
  if (lane == 0) {
    shared.queue[at.slot] = item;
    barrier_arrive(full);
  }
  __syncwarp();
}

template <int kZ>
using RingPlace = RingCursor<DecodeShared<kZ>::kStages>;

/// Lane i < kUnit / kBox brings the i-th box of the unit, at `row` of both caches; -1: nobody sees it.
template <int kZ, int kBox>
__device__ __forceinline__ void send_unit(DecodeShared<kZ>& shared, const DecodeMaps& maps, int row,
                                          int group, RingPlace<kZ>& at) {
  constexpr int kBytes = kBox * kZ * 2;
  const int lane = threadIdx.x % kWarp;
  const uint32_t full = shared_address(&shared.full[group][at.slot]);
  const uint32_t bytes = __popc(__ballot_sync(kAllLanes, row >= 0)) * 2 * kBytes;
  barrier_wait(shared_address(&shared.empty[group][at.slot]), at.parity ^ 1);
  if (lane == 0) barrier_arrive_expect(full, bytes);
  __syncwarp();
  if (row >= 0) {
    const uint32_t to = shared_address(shared.ring[group][at.slot]) + lane * kBytes;
    tensor_copy_once(to, maps.k, row, 0, full);
    tensor_copy_once(to + kUnitBytes<kZ>, maps.v, row, 0, full);
  }
  __syncwarp();
  at.advance();
}

/// `row`: lane i's is that of the item's i-th box.
template <int kZ, int kBox>
__device__ __forceinline__ void send_units(DecodeShared<kZ>& shared, const DecodeMaps& maps,
                                           int units, int row, RingPlace<kZ> (&at)[kDecodeGroups]) {
  constexpr int kBoxes = kUnit / kBox;
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int first = 0; first < units; first += kDecodeGroups) {
#pragma unroll
    for (int g = 0; g < kDecodeGroups; ++g) {
      if (first + g >= units) break;
      const int its = __shfl_sync(kAllLanes, row, ((first + g) * kBoxes + lane) % kWarp);
      send_unit<kZ, kBox>(shared, maps, lane < kBoxes ? its : -1, g, at[g]);
    }
  }
}

template <int kZ, int kBox>
__device__ __forceinline__ void produce(DecodeShared<kZ>& shared, const Attend& a,
                                        const DecodeMaps& maps) {
  const int lane = threadIdx.x % kWarp;
  RingCursor<kDecodeQueue> queue;
  RingPlace<kZ> at[kDecodeGroups];
  for (uint32_t parity = 0;; parity ^= 1) {
    barrier_wait(shared_address(&shared.next_full), parity);
    const DecodeItem item = shared.next;
    const int row = shared.next_row[lane];
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.next_empty));
    send_item(shared, a, item, queue);
    if (item.units == 0) return;
    queue.advance();
    send_units<kZ, kBox>(shared, maps, item.units, row, at);
  }
}

}  // namespace switchyard::cuda
