// SPDX-License-Identifier: Apache-2.0
// The loading roles of prefill attention on Hopper: one warp claims items and streams K and V, another one brings queries.
// They run ahead of the consumers, over the borders of items.
//
//   ring       tiles of K and V in the order of their use: K0 K1 V0 K2 V1 K3 V2 ... V
//   tile       [Z / 64][128 positions][64], swizzled; kBox positions of 64 z are a copy: 64, or 16 where the cache's blocks are
//              no multiple of 64. Boxes that no row of the item sees are not copied: their blocks may be gone
//   queries    [Z / 64][rows][64], swizzled; row i is token i / share, query head i % share of the kv head's, and an item has as many whole
//              tokens as its rows hold: a copy for 64 z. What lies behind a sequence's last token is never written
#pragma once
#include "kernels/cuda/attention_items.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_copy.cuh"

namespace switchyard::cuda {

inline constexpr int kKeys = 128;
inline constexpr int kPrefillQueue = 2, kPrefillStages = 6;
inline constexpr int kPanelBytes = kKeys * 128;  ///< of 64 z of a tile

/// A head's width, and groups of four warps that consume, 64 rows each.
template <int kZ_, int kGroups_>
struct PrefillTile {
  static constexpr int kZ = kZ_, kGroups = kGroups_;
  static constexpr int kRows = 64 * kGroups;  ///< of an item
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int kReaders = kGroups * 4 + 1;  ///< warps that read the queue
  static constexpr int kQueryPanelBytes = kRows * 128;
  /// Whole tokens of an item, of `share` rows each.
  static __host__ __device__ constexpr int tokens(int share) { return kRows / share; }
};

/// Rows from `row` on of a sequence and a kv head, and the positions [seen, end) that any of them sees.
struct PrefillItem {
  int sequence = -1, kv_head = 0, row = 0;
  int first_token = 0, tokens = 0, context = 0;  ///< of the sequence
  int seen = 0, end = 0;
  __device__ int first_tile() const { return seen / kKeys; }
  __device__ int end_tile() const { return (end + kKeys - 1) / kKeys; }
};

template <class TileT>
struct PrefillShared {
  static constexpr int kBytes = TileT::kZ / 64 * kPanelBytes;  ///< of a tile
  alignas(1024) uint8_t queries[TileT::kZ / 64 * TileT::kQueryPanelBytes];
  alignas(1024) uint8_t tiles[kPrefillStages][kBytes];
  alignas(8) uint64_t full[kPrefillStages], empty[kPrefillStages];
  uint64_t queries_full, queries_empty;
  uint64_t queue_full[kPrefillQueue], queue_empty[kPrefillQueue];
  PrefillItem queue[kPrefillQueue];
};

struct PrefillMaps {
  CUtensorMap k, v, q;
};

/// Items of a sequence and a kv head; none when it adds one token, which attend_decode takes.
template <class TileT>
__device__ __forceinline__ int num_prefill_tiles(const Attend& a, int b) {
  const int tokens = added_tokens(a, b);
  const int each = TileT::tokens(a.heads / a.kv_heads);
  return tokens < 2 ? 0 : (tokens + each - 1) / each;
}

/// Whole warp: the sequence that holds item `index` of a kv head, and how many of its items come before; -1: none.
template <class TileT>
__device__ __forceinline__ int find_prefill_sequence(const Attend& a, int& index) {
  const int lane = threadIdx.x % kWarp;
  for (int first = 0; first < a.sequences; first += kWarp) {
    int sum = first + lane < a.sequences ? num_prefill_tiles<TileT>(a, first + lane) : 0;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset <<= 1) {
      const int other = __shfl_up_sync(kAllLanes, sum, offset);
      if (lane >= offset) sum += other;
    }
    const unsigned behind = __ballot_sync(kAllLanes, sum > index);
    const int found = __ffs(static_cast<int>(behind)) - 1;
    const int before = __shfl_sync(kAllLanes, sum, found > 0 ? found - 1 : 0);
    if (found >= 0) {
      if (found > 0) index -= before;
      return first + found;
    }
    index -= __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  return -1;
}

/// Whole warp. A sequence's last tiles see the most and come first.
template <class TileT>
__device__ __forceinline__ PrefillItem find_prefill_item(const Attend& a, int index) {
  const int share = a.heads / a.kv_heads, each = TileT::tokens(share);
  PrefillItem item;
  item.kv_head = index % a.kv_heads;
  index /= a.kv_heads;
  item.sequence = find_prefill_sequence<TileT>(a, index);
  if (item.sequence < 0) return item;
  const int token = (num_prefill_tiles<TileT>(a, item.sequence) - 1 - index) * each;
  item.row = token * share;
  item.first_token = a.seq_offset[item.sequence];
  item.tokens = added_tokens(a, item.sequence);
  item.context = a.context_len[item.sequence];
  item.end = item.context + min(item.tokens, token + each);
  item.seen = a.window > 0 ? max(0, item.context + token - a.window + 1) : 0;
  return item;
}

/// One whole warp of kReaders; false at the end.
template <class TileT>
__device__ __forceinline__ bool next_item(PrefillShared<TileT>& shared,
                                          RingCursor<kPrefillQueue>& at, PrefillItem& item) {
  barrier_wait(shared_address(&shared.queue_full[at.slot]), at.parity);
  item = shared.queue[at.slot];
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(shared_address(&shared.queue_empty[at.slot]));
  at.advance();
  return item.sequence >= 0;
}

// ---- K and V

using PrefillPlace = RingCursor<kPrefillStages>;

/// Whole warp: lane i copies a box of 64 z, that at `row` if any.
template <class TileT, int kBox>
__device__ __forceinline__ void send_tile(PrefillShared<TileT>& shared, const CUtensorMap& map,
                                          int row, PrefillPlace& at) {
  constexpr int kHalves = TileT::kZ / 64;
  const int lane = threadIdx.x % kWarp;
  const uint32_t full = shared_address(&shared.full[at.slot]);
  const uint32_t bytes = __popc(__ballot_sync(kAllLanes, row >= 0)) * kBox * 128;
  barrier_wait(shared_address(&shared.empty[at.slot]), at.parity ^ 1);
  if (lane == 0) barrier_arrive_expect(full, bytes);
  __syncwarp();
  if (row >= 0) {
    const uint32_t to = shared_address(shared.tiles[at.slot]) + lane % kHalves * kPanelBytes +
                        lane / kHalves * (kBox * 128);
    tensor_copy(to, map, row, lane % kHalves, full);
  }
  __syncwarp();
  at.advance();
}

/// Calls `begin` when it knows what comes first.
template <class TileT, int kBox, class Begin>
__device__ __forceinline__ void send_tiles(PrefillShared<TileT>& shared, const Attend& a,
                                           const PrefillMaps& maps, const PrefillItem& item,
                                           PrefillPlace& at, const Begin& begin) {
  constexpr int kHalves = TileT::kZ / 64, kCopies = kKeys / kBox * kHalves;
  const int lane = threadIdx.x % kWarp;
  const auto find_row = [&](int tile) {
    const int position = tile * kKeys + lane / kHalves * kBox;
    const bool real = lane < kCopies && position < item.end && position + kBox > item.seen;
    return real ? cache_row(a, item.sequence, item.kv_head, position) : -1;
  };
  const int last = item.end_tile();
  int tile = item.first_tile(), row = find_row(tile);
  begin();
  send_tile<TileT, kBox>(shared, maps.k, row, at);
#pragma unroll 1
  for (++tile; tile < last; ++tile) {
    const int next_row = find_row(tile);
    send_tile<TileT, kBox>(shared, maps.k, next_row, at);
    send_tile<TileT, kBox>(shared, maps.v, row, at);
    row = next_row;
  }
  send_tile<TileT, kBox>(shared, maps.v, row, at);
}

/// One warp. The first item and its first tile's place depend on the step's arrays alone.
template <class TileT, int kBox>
__device__ __forceinline__ void claim_and_send(PrefillShared<TileT>& shared, const Attend& a,
                                               const PrefillMaps& maps) {
  const int lane = threadIdx.x % kWarp;
  RingCursor<kPrefillQueue> queue;
  PrefillPlace at;
  int index = static_cast<int>(blockIdx.x);
  while (true) {
    const PrefillItem item = find_prefill_item<TileT>(a, index);
    barrier_wait(shared_address(&shared.queue_empty[queue.slot]), queue.parity ^ 1);
    if (lane == 0) {
      shared.queue[queue.slot] = item;
      barrier_arrive(shared_address(&shared.queue_full[queue.slot]));
    }
    __syncwarp();
    queue.advance();
    const bool is_first = index < static_cast<int>(gridDim.x);
    if (item.sequence < 0) {
      if (is_first) wait_for_previous();
      if (lane == 0) leave_claims(prefill_claims(a));
      return;
    }
    int claimed = 0;
    send_tiles<TileT, kBox>(shared, a, maps, item, at, [&] {
      if (is_first) wait_for_previous();
      if (lane == 0) claimed = atomicAdd(&prefill_claims(a)->next, 1);
    });
    index = static_cast<int>(gridDim.x) + __shfl_sync(kAllLanes, claimed, 0);
  }
}

// ---- queries

/// One warp.
template <class TileT>
__device__ __forceinline__ void send_queries(PrefillShared<TileT>& shared, const Attend& a,
                                             const PrefillMaps& maps) {
  const int share = a.heads / a.kv_heads;
  const uint32_t full = shared_address(&shared.queries_full);
  const uint32_t bytes = TileT::tokens(share) * share * TileT::kZ * static_cast<int>(sizeof(bf16));
  RingCursor<kPrefillQueue> queue;
  uint32_t parity = 0;
  for (PrefillItem item; next_item(shared, queue, item); parity ^= 1) {
    barrier_wait(shared_address(&shared.queries_empty), parity ^ 1);
    if (threadIdx.x % kWarp != 0) continue;
    barrier_arrive_expect(full, bytes);
    for (int half = 0; half < TileT::kZ / 64; ++half) {
      tensor_copy(shared_address(shared.queries) + half * TileT::kQueryPanelBytes, maps.q, half,
                  item.kv_head * share, item.first_token + item.row / share, full);
    }
  }
}

}  // namespace switchyard::cuda
