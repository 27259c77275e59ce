// SPDX-License-Identifier: Apache-2.0
// Decode attention on Hopper, bound by the stream of K and V: one block of a multiprocessor.
//
//   producer  one warp claims items, passes them on with their queries, and keeps the rings full, over the borders of items
//   consumer  eight warps; a warp takes every eighth tile of an item from a ring of its own (a barrier tells a waiter only
//             the parity of its phase, so in one ring for all a warp that is ahead would take old tiles for new)
//   merger    four warps make one of the consumers' states, and, when an item is the last of its token, of all its spans;
//             meanwhile the consumers are at the next item
// 128 KiB are on their way or in use in each multiprocessor; a third of that covers the latency of memory at full rate.
// Floor: the bytes of K and V of every position, once. Source: Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023, arXiv
// 2309.06180.
#include "kernels/cuda/attention_decode_merge.cuh"
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_copy.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 8;  // that consume
constexpr int kConsumers = kWarps * kWarp, kThreads = kConsumers + kMergeThreads + kWarp;
constexpr int kQueue = 2, kStates = 2;

template <int kZ>
struct Shared {
  static constexpr int kStages = 256 / kZ;         // of each warp's ring
  static constexpr int kQueryBytes = kZ * 2 + 16;  // of a head; padded against bank conflicts
  alignas(1024) unsigned char ring[kWarps][kStages][2 * kTileBytes<kZ>];
  SharedStates<kZ, kWarps> states[kStates];
  alignas(16) unsigned char queries[kQueue][kTileHeads][kQueryBytes];
  DecodeItem queue[kQueue];
  alignas(8) uint64_t full[kWarps][kStages], empty[kWarps][kStages];
  uint64_t queue_full[kQueue], queue_empty[kQueue];
  uint64_t states_full[kStates], states_empty[kStates];
  ItemCounts spans;
  int is_last;
};

struct Maps {
  CUtensorMap k, v;
};

template <int kZ>
__device__ void init_barriers(Shared<kZ>& shared) {
  for (int w = 0; w < kWarps; ++w) {
    for (int i = 0; i < Shared<kZ>::kStages; ++i) {
      barrier_init(shared_address(&shared.full[w][i]), 1);
      barrier_init(shared_address(&shared.empty[w][i]), 1);
    }
  }
  for (int i = 0; i < kQueue; ++i) {
    barrier_init(shared_address(&shared.queue_full[i]), 1);
    barrier_init(shared_address(&shared.queue_empty[i]), kWarps);
  }
  for (int i = 0; i < kStates; ++i) {
    barrier_init(shared_address(&shared.states_full[i]), kWarps);
    barrier_init(shared_address(&shared.states_empty[i]), kMergeThreads / kWarp);
  }
  barrier_init_done();
}

// ---- the producer warp

template <int kZ>
__device__ void send_item(Shared<kZ>& shared, const Attend& a, const DecodeItem& item,
                          const RingCursor<kQueue>& at) {
  const int lane = threadIdx.x % kWarp;
  const uint32_t full = shared_address(&shared.queue_full[at.slot]);
  barrier_wait(shared_address(&shared.queue_empty[at.slot]), at.parity ^ 1);
  if (lane == 0) {
    shared.queue[at.slot] = item;
    barrier_arrive_expect(full, item.heads * kZ * 2);
  }
  __syncwarp();
  if (lane < item.heads) {
    bulk_copy(shared_address(shared.queries[at.slot][lane]),
              static_cast<const bf16*>(a.q) + (first_head(a, item) + lane) * kZ, kZ * 2, full);
  }
}

// Lane i brings the i-th tile of the item, `row`, to warp i % kWarps; `sent` counts that warp's tiles before.
template <int kZ>
__device__ void send_tiles(Shared<kZ>& shared, const Maps& maps, int tiles, int row, int sent) {
  constexpr int kStages = Shared<kZ>::kStages;
  const int lane = threadIdx.x % kWarp, warp = lane % kWarps;
#pragma unroll 1
  for (int round = 0; round * kWarps < tiles; ++round) {
    if (lane / kWarps == round && lane < tiles) {
      const int at = sent + round, slot = at % kStages;
      const uint32_t full = shared_address(&shared.full[warp][slot]);
      const uint32_t to = shared_address(shared.ring[warp][slot]);
      barrier_wait(shared_address(&shared.empty[warp][slot]), (at / kStages & 1) ^ 1);
      barrier_arrive_expect(full, 2 * kTileBytes<kZ>);
      tensor_copy(to, maps.k, row, 0, full);
      tensor_copy(to + kTileBytes<kZ>, maps.v, row, 0, full);
    }
    __syncwarp();
  }
}

template <int kZ>
__device__ void produce(Shared<kZ>& shared, const Attend& a, const Maps& maps) {
  const int lane = threadIdx.x % kWarp, items = num_decode_items(a, shared.spans);
  RingCursor<kQueue> at;
  int index = static_cast<int>(blockIdx.x), sent = 0;
  while (true) {
    const DecodeItem item = index < items ? find_decode_item(a, shared.spans, index) : DecodeItem{};
    int claimed = 0, row = 0;
    if (lane == 0 && items > static_cast<int>(gridDim.x)) {
      if (item.tiles > 0) {
        claimed = atomicAdd(&decode_claims(a)->next, 1);
      } else {
        leave_claims(decode_claims(a));
      }
    }
    if (lane < item.tiles) {
      row = cache_row(a, item.sequence, item.kv_head, (item.tile + lane) * kCacheTile);
    }
    send_item(shared, a, item, at);
    if (item.tiles == 0) return;
    at.advance();
    send_tiles(shared, maps, item.tiles, row, sent);
    sent += (item.tiles - lane % kWarps + kWarps - 1) / kWarps;
    index = static_cast<int>(gridDim.x) + __shfl_sync(kAllLanes, claimed, 0);
  }
}

// ---- the consumer warps

template <int kZ>
using RingPlace = RingCursor<Shared<kZ>::kStages>;

// One warp over its tiles of an item.
template <int kZ>
__device__ void attend_tiles(Shared<kZ>& shared, const DecodeItem& item, float scale,
                             const Queries<kZ>& q, RingPlace<kZ>& at, DecodeState<kZ>& state) {
  const int warp = threadIdx.x / kWarp;
#pragma unroll 1
  for (int t = warp; t < item.tiles; t += kWarps, at.advance()) {
    const uint32_t tile = shared_address(shared.ring[warp][at.slot]);
    const int first = (item.tile + t) * kCacheTile;
    const int low = item.start - first, high = item.end - first;
    barrier_wait(shared_address(&shared.full[warp][at.slot]), at.parity);
    if (low > 0 || high < kCacheTile) {
      clear_rows<kZ>(tile + kTileBytes<kZ>, low, high);
      fence_async_shared();  // before the copy engine writes there again
    }
    attend_tile<kZ>(q, tile, scale, low, high, state);
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(shared_address(&shared.empty[warp][at.slot]));
  }
}

template <int kZ>
__device__ void consume(Shared<kZ>& shared, const Attend& a) {
  const bool first_lane = threadIdx.x % kWarp == 0;
  RingCursor<kQueue> next;
  RingCursor<kStates> out;
  RingPlace<kZ> at;
  for (bool more = true; more; next.advance(), out.advance()) {
    barrier_wait(shared_address(&shared.queue_full[next.slot]), next.parity);
    const DecodeItem item = shared.queue[next.slot];
    more = item.tiles > 0;
    Queries<kZ> q;
    load_queries<kZ>(shared.queries[next.slot], Shared<kZ>::kQueryBytes, item.heads, q);
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.queue_empty[next.slot]));
    DecodeState<kZ> state;
    attend_tiles<kZ>(shared, item, a.scale * kLog2e, q, at, state);
    barrier_wait(shared_address(&shared.states_empty[out.slot]), out.parity ^ 1);
    share_state<kZ, kWarps>(state, item.heads, shared.states[out.slot]);
    if (threadIdx.x == 0) shared.states[out.slot].item = item;
    __syncwarp();
    if (first_lane) barrier_arrive(shared_address(&shared.states_full[out.slot]));
  }
}

// ---- the merging warps

template <int kZ>
__device__ void merge(Shared<kZ>& shared, const Attend& a) {
  const int thread = static_cast<int>(threadIdx.x) - kConsumers;
  for (RingCursor<kStates> at;; at.advance()) {
    const auto& states = shared.states[at.slot];
    barrier_wait(shared_address(&shared.states_full[at.slot]), at.parity);
    const DecodeItem item = states.item;
    if (item.tiles == 0) return;
    merge_warps<kZ, kWarps>(a, item, states, thread);
    __syncwarp();
    if (thread % kWarp == 0) barrier_arrive(shared_address(&shared.states_empty[at.slot]));
    if (item.spans > 1 && is_last_span(a, item, thread, shared.is_last)) {
      merge_spans<kZ>(a, item, thread);
    }
  }
}

template <int kZ>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ Attend a, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<kZ>*>(raw);
  if (threadIdx.x == kThreads - 1) {
    tensor_prefetch(maps.k);
    tensor_prefetch(maps.v);
    init_barriers(shared);
  }
  sum_counts(a.sequences, shared.spans, [&](int b) { return num_spans(a, b); });
  let_next_begin();
  wait_for_previous();  // what is above depends on the step's arrays alone
  if (threadIdx.x < kConsumers) {
    consume(shared, a);
  } else if (threadIdx.x < kConsumers + kMergeThreads) {
    merge(shared, a);
  } else {
    produce(shared, a, maps);
  }
}

template <int kZ>
bool launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(Shared<kZ>);
  static const bool raised = [] {
    return cudaFuncSetAttribute(decode_kernel<kZ>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kBytes) == cudaSuccess;
  }();
  Maps maps;
  if (!raised || !make_cache_map(maps.k, args.k_cache, kZ, kCacheTile, kZ / 64) ||
      !make_cache_map(maps.v, args.v_cache, kZ, kCacheTile, kZ / 64)) {
    return false;
  }
  launch_chained(decode_kernel<kZ>, dim3(static_cast<unsigned>(num_multiprocessors())), kThreads,
                 kBytes, stream, args, maps);
  return true;
}

}  // namespace

bool attend_is_sm90() noexcept { return is_sm90(); }

bool attend_sm90a_accepts(const Attend& args) noexcept {
  CUtensorMap map;
  const auto halves = static_cast<unsigned>(args.head_dim / 64);
  return is_sm90() && args.scale > 0 && attend_fast_accepts(args) &&
         make_cache_map(map, args.k_cache, args.head_dim, kCacheTile, halves) &&
         make_cache_map(map, args.v_cache, args.head_dim, kCacheTile, halves);
}

bool attend_decode_sm90a(const Attend& args, StreamHandle stream) noexcept {
  if (!is_sm90()) return false;
  if (args.tokens == 0) return true;
  return args.head_dim == 64 ? launch<64>(args, stream) : launch<128>(args, stream);
}

}  // namespace switchyard::cuda
