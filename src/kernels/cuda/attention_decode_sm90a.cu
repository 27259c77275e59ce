// SPDX-License-Identifier: Apache-2.0
// Decode attention on Hopper, bound by the stream of K and V: one block of a multiprocessor.
//
//   scout, producer  a warp each; see attention_decode_sm90a_load.cuh
//   consumer         two groups of four warps, a ring of units each; a warp takes a tile of 16 positions of each unit
//   merger           two warps make one of the consumers' states; meanwhile the consumers are at the next item
//   finisher         two groups of two warps, which take items in turn: when an item is the last of its token, they make one of its
//                    spans. The fence before an item is counted takes microseconds when the memory is busy, and nobody else
//                    waits for it
// 128 KiB are on their way or in use in each multiprocessor; a third of that covers the latency of memory at full rate.
// Floor: the bytes of K and V of every position, once. Source: Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023, arXiv
// 2309.06180.
#include "kernels/cuda/attention_decode_sm90a_load.cuh"
#include "kernels/cuda/attention_entries.h"

namespace switchyard::cuda {
namespace {

// The first warp of each role; consumers come first.
constexpr int kMerger = kDecodeWarps, kFinisher = kMerger + kMergeWarps;
constexpr int kProducer = kFinisher + kFinishGroups * kFinishWarps, kScout = kProducer + 1;
constexpr int kThreads = (kScout + 1) * kWarp;

// ---- the consumer warps

// One warp over its tiles of an item.
template <int kZ>
__device__ void attend_tiles(DecodeShared<kZ>& shared, const DecodeItem& item, float scale,
                             const Queries<kZ>& q, RingPlace<kZ>& at, DecodeState<kZ>& state) {
  const int group = threadIdx.x / kWarp / kUnitTiles;
  const int offset = threadIdx.x / kWarp % kUnitTiles * kCacheTile;  // in a unit
#pragma unroll 1
  for (int u = group; u < item.units; u += kDecodeGroups, at.advance()) {
    const int first = (item.unit + u) * kUnit + offset;
    barrier_wait(shared_address(&shared.full[group][at.slot]), at.parity);
    if (item.sees(first, kCacheTile)) {
      const uint32_t keys = shared_address(shared.ring[group][at.slot]) + offset * kZ * 2;
      const uint32_t values = keys + kUnitBytes<kZ>;
      const int low = item.start - first, high = item.end - first;
      if (low > 0 || high < kCacheTile) {
        clear_rows<kZ, HalvesTogether<kZ>>(values, low, high);
        fence_async_shared();  // before the copy engine writes there again
      }
      attend_tile<kZ, HalvesTogether<kZ>>(q, keys, values, scale, low, high, state);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(shared_address(&shared.empty[group][at.slot]));
  }
}

template <int kZ>
__device__ void consume(DecodeShared<kZ>& shared, const Attend& a) {
  const bool first_lane = threadIdx.x % kWarp == 0;
  RingCursor<kDecodeQueue> next;
  RingCursor<kDecodeStates> out;
  RingPlace<kZ> at;
  for (bool more = true; more; next.advance(), out.advance()) {
    barrier_wait(shared_address(&shared.queue_full[next.slot]), next.parity);
    const DecodeItem item = shared.queue[next.slot];
    more = item.units > 0;
    Queries<kZ> q;
    load_queries<kZ>(shared.queries[next.slot], DecodeShared<kZ>::kQueryBytes, item.heads, q);
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.queue_empty[next.slot]));
    DecodeState<kZ> state;
    attend_tiles<kZ>(shared, item, a.scale * kLog2e, q, at, state);
    barrier_wait(shared_address(&shared.states_empty[out.slot]), out.parity ^ 1);
    share_state<kZ, kDecodeWarps>(state, item.heads, shared.states[out.slot]);
    if (threadIdx.x == 0) shared.states[out.slot].item = item;
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.states_full[out.slot]));
  }
}

// ---- the merging warps

template <int kZ>
__device__ void merge(DecodeShared<kZ>& shared, const Attend& a) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp - kMerger;
  const bool first_lane = threadIdx.x % kWarp == 0;
  RingCursor<kFinishGroups> out;
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
    merge_warps<kZ, kDecodeWarps>(a, item, states, warp, kMergeWarps);
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.states_empty[at.slot]));
    if (item.spans > 1) hand_over(item);
  }
  for (int i = 0; i < kFinishGroups; ++i) hand_over({});
}

// ---- the finishing warps

template <int kZ>
__device__ void finish(DecodeShared<kZ>& shared, const Attend& a) {
  const int at = static_cast<int>(threadIdx.x) / kWarp - kFinisher;
  const int group = at / kFinishWarps, warp = at % kFinishWarps;
  const bool first_lane = threadIdx.x % kWarp == 0;
  for (uint32_t parity = 0;; parity ^= 1) {
    barrier_wait(shared_address(&shared.written_full[group]), parity);
    const DecodeItem item = shared.written[group];
    if (item.units == 0) return;
    if (warp == 0 && first_lane) shared.is_last[group] = is_last_span(a, item);
    named_barrier(1 + group, kFinishWarps * kWarp);
    const bool last = shared.is_last[group];
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.written_empty[group]));
    if (last) merge_spans<kZ>(a, item, warp, kFinishWarps);
  }
}

template <int kZ, int kBox>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ Attend a, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<DecodeShared<kZ>*>(raw);
  if (threadIdx.x == kThreads - 1) {
    tensor_prefetch(maps.k);
    tensor_prefetch(maps.v);
    init_barriers(shared);
  }
  sum_counts(a.sequences, shared.spans, [&](int b) { return num_spans(a, b); });
  let_next_begin();
  const int warp = threadIdx.x / kWarp;
  if (warp == kScout) {
    scout<kZ, kBox>(shared, a);
    return;
  }
  wait_for_previous();  // what is above depends on the step's arrays alone
  if (warp < kMerger) {
    consume<kZ>(shared, a);
  } else if (warp < kFinisher) {
    merge(shared, a);
  } else if (warp < kProducer) {
    finish(shared, a);
  } else {
    produce<kZ, kBox>(shared, a, maps);
  }
}

bool make_maps(DecodeMaps& maps, const Attend& args) {
  const auto halves = static_cast<unsigned>(args.head_dim / 64);
  const auto box = static_cast<unsigned>(box_of(args));
  return make_cache_map(maps.k, args.k_cache, args.head_dim, box, halves) &&
         make_cache_map(maps.v, args.v_cache, args.head_dim, box, halves);
}

template <int kZ, int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(DecodeShared<kZ>);
  static const bool raised = [] {
    return cudaFuncSetAttribute(decode_kernel<kZ, kBox>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) == cudaSuccess;
  }();
  DecodeMaps maps;
  if (!raised || !make_maps(maps, args)) return false;
  launch_chained(decode_kernel<kZ, kBox>, dim3(static_cast<unsigned>(num_multiprocessors())),
                 kThreads, kBytes, stream, args, maps);
  return true;
}

template <int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  return args.head_dim == 64 ? launch<64, kBox>(args, stream) : launch<128, kBox>(args, stream);
}

}  // namespace

bool attend_is_sm90() noexcept { return is_sm90(); }

bool attend_sm90a_accepts(const Attend& args) noexcept {
  DecodeMaps maps;
  return is_sm90() && args.scale > 0 && attend_fast_accepts(args) && make_maps(maps, args);
}

bool attend_decode_sm90a(const Attend& args, StreamHandle stream) noexcept {
  if (!is_sm90()) return false;
  if (args.tokens == 0) return true;
  return box_of(args) == kUnit ? launch<kUnit>(args, stream) : launch<kCacheTile>(args, stream);
}

}  // namespace switchyard::cuda
