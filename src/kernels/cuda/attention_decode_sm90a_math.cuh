// SPDX-License-Identifier: Apache-2.0
// The roles of decode attention on Hopper that compute: consumers attend, mergers make one of their states, finishers one of a token's
// pieces.
#pragma once
#include "kernels/cuda/attention_decode_sm90a_load.cuh"

namespace switchyard::cuda {

/// The first warp of each role; consumers come first.
inline constexpr int kMerger = kDecodeWarps, kFinisher = kMerger + kMergeWarps;
inline constexpr int kProducer = kFinisher + kFinishGroups * kFinishWarps, kScout = kProducer + 1;
inline constexpr int kDecodeThreads = (kScout + 1) * kWarp;
inline constexpr int kGroupBarrier =
    1 + kFinishGroups;  ///< of consumers; the finishers' come first

// ---- the consumer warps

/// One warp of a group over the group's units of an item. `turn` counts the group's units.
template <int kZ>
__device__ __forceinline__ void attend_units(DecodeShared<kZ>& shared, const DecodeItem& item,
                                             float scale, const Queries<kZ>& q, RingPlace<kZ>& at,
                                             uint32_t& turn, UnitState<kZ>& state) {
  const int group = threadIdx.x / kWarp / kUnitTiles;
  const int offset = threadIdx.x / kWarp % kUnitTiles * kCacheTile;  // in a unit
  UnitExchange& exchange = shared.exchange[group];
#pragma unroll 1
  for (int u = group; u < item.units; u += kDecodeGroups, at.advance(), turn ^= 1) {
    const int first = (item.unit + u) * kUnit, low = item.start - first, high = item.end - first;
    barrier_wait(shared_address(&shared.full[group][at.slot]), at.parity);
    const uint32_t keys = shared_address(shared.ring[group][at.slot]);
    const uint32_t values = keys + kUnitBytes<kZ>, weights = shared_address(exchange.weights[turn]);
    float s[4] = {};
    score_tile<kZ, HalvesTogether<kZ>>(q, keys + offset * kZ * 2, s);
    weigh_unit<kZ>(scale, low - offset, high - offset, kGroupBarrier + group, weights, s, exchange,
                   state);
    if (low > 0 || high < kUnit) {
      clear_own_values<kZ>(values, low, high);
      fence_async_shared();  // before the copy engine writes there again
    }
    accumulate_unit<kZ, HalvesTogether<kZ>>(weights, values, seen_tiles(low, high), state);
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(shared_address(&shared.empty[group][at.slot]));
  }
}

template <int kZ>
__device__ __forceinline__ void consume(DecodeShared<kZ>& shared, const Attend& a) {
  const bool first_lane = threadIdx.x % kWarp == 0;
  RingCursor<kDecodeQueue> next;
  RingCursor<kDecodeStates> out;
  RingPlace<kZ> at;
  uint32_t turn = 0;
  for (bool more = true; more; next.advance(), out.advance()) {
    barrier_wait(shared_address(&shared.queue_full[next.slot]), next.parity);
    const DecodeItem item = shared.queue[next.slot];
    more = item.units > 0;
    Queries<kZ> q;
    load_queries<kZ>(shared.queries[next.slot], DecodeShared<kZ>::kQueryBytes, item.heads, q);
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.queue_empty[next.slot]));
    UnitState<kZ> state;
    attend_units<kZ>(shared, item, a.scale * kLog2e, q, at, turn, state);
    barrier_wait(shared_address(&shared.states_empty[out.slot]), out.parity ^ 1);
    share_unit_state<kZ, kDecodeGroups>(state, item.heads, shared.states[out.slot]);
    if (threadIdx.x == 0) shared.states[out.slot].item = item;
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.states_full[out.slot]));
  }
}

// ---- the merging warps

template <int kZ>
__device__ __forceinline__ void merge(DecodeShared<kZ>& shared, const Attend& a) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp - kMerger;
  const bool first_lane = threadIdx.x % kWarp == 0;
  RingCursor<kFinishGroups> out;
  Quarter piece[Quads<kZ, kMergeWarps>::kEach];
  const auto hand_over = [&](const DecodeItem& item) {
    barrier_wait(shared_address(&shared.written_empty[out.slot]), out.parity ^ 1);
    if (warp == 0 && first_lane) shared.written[out.slot] = item;
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.written_full[out.slot]));
    out.advance();
  };
  for (RingCursor<kDecodeStates> at;; at.advance()) {
    const auto& states = shared.states[at.slot];
    barrier_wait(shared_address(&shared.states_full[at.slot]), at.parity);
    const DecodeItem item = states.item;
    if (item.units == 0) break;
    merge_states<kZ, kMergeWarps>(a, item, states, warp, piece);
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.states_empty[at.slot]));
    if (item.ends && item.pieces > 1) hand_over(item);
  }
  for (int i = 0; i < kFinishGroups; ++i) hand_over({});
}

// ---- the finishing warps

template <int kZ>
__device__ __forceinline__ void finish(DecodeShared<kZ>& shared, const Attend& a, int spans) {
  const int at = static_cast<int>(threadIdx.x) / kWarp - kFinisher;
  const int group = at / kFinishWarps, warp = at % kFinishWarps;
  const bool first_lane = threadIdx.x % kWarp == 0;
  for (uint32_t parity = 0;; parity ^= 1) {
    barrier_wait(shared_address(&shared.written_full[group]), parity);
    const DecodeItem item = shared.written[group];
    if (item.units == 0) return;
    if (warp == 0 && first_lane) shared.is_last[group] = is_last_piece(a, item);
    named_barrier(1 + group, kFinishWarps * kWarp);
    const bool last = shared.is_last[group];
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.written_empty[group]));
    if (last) merge_pieces<kZ, kFinishWarps>(a, item, spans, warp);
  }
}

}  // namespace switchyard::cuda
