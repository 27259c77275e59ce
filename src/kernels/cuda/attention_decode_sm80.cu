// SPDX-License-Identifier: Apache-2.0
// Decode attention on sm_80 and newer: a block of four warps takes items by their number; a warp takes every fourth tile,
// and copies the tiles into a ring of its own, one ahead.
// Floor: the bytes of K and V of every position, once. Source: Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023, arXiv
// 2309.06180.
#include "kernels/cuda/attention_decode_merge.cuh"
#include "kernels/cuda/attention_decode_short.cuh"
#include "kernels/cuda/attention_entries.h"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp, kStages = 2;
constexpr int kBlocks = 2;  // of a multiprocessor

template <int kZ>
struct Shared {
  union {  // states are shared when the rings are empty
    alignas(128) unsigned char ring[kWarps][kStages][2 * kTileBytes<kZ>];
    SharedStates<kZ, kWarps, 1> states;
  };
  ItemCounts spans;
  bool is_last;
};

/// Queues the copies of a tile, whose rows follow each other in both caches.
template <int kZ>
__device__ void fetch_tile(const Attend& a, int64_t row, uint32_t to) {
  constexpr int kChunks = kZ / 8;
  const auto* k = static_cast<const bf16*>(a.k_cache) + row * kZ;
  const auto* v = static_cast<const bf16*>(a.v_cache) + row * kZ;
#pragma unroll
  for (int i = threadIdx.x % kWarp; i < kCacheTile * kChunks; i += kWarp) {
    const int position = i / kChunks, chunk = i % kChunks;
    const uint32_t at =
        to + chunk / 8 * HalvesApart::kHalf + position * 128 + ((chunk % 8 ^ position % 8) << 4);
    copy_16(at, k + i * 8, 16);
    copy_16(at + kTileBytes<kZ>, v + i * 8, 16);
  }
}

/// One warp over its tiles of an item.
template <int kZ>
__device__ void run_warp(const Attend& a, const DecodeItem& item, uint32_t ring,
                         DecodeState<kZ>& state) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int first = item.unit * kUnit, tiles = item.units * kUnitTiles;
  // Lane i finds the i-th tile of the item: one round trip for all.
  int row = -1;
  if (lane < tiles && item.sees(first + lane * kCacheTile, kCacheTile)) {
    row = cache_row(a, item.sequence, item.kv_head, first + lane * kCacheTile);
  }
  const auto fetch = [&](int tile, int slot) {
    const int from = __shfl_sync(kAllLanes, row, tile % kWarp);
    if (tile < tiles && from >= 0) fetch_tile<kZ>(a, from, ring + slot * 2 * kTileBytes<kZ>);
    copies_commit();
  };
  fetch(warp, 0);
  Queries<kZ> q;
  load_queries<kZ>(static_cast<const bf16*>(a.q) + first_head(a, item) * kZ, kZ * 2, item.heads, q);
  int slot = 0;
  for (int t = warp; t < tiles; t += kWarps, slot ^= 1) {
    fetch(t + kWarps, slot ^ 1);
    copies_wait<1>();
    __syncwarp();
    const int at = first + t * kCacheTile;
    if (!item.sees(at, kCacheTile)) continue;
    const uint32_t keys = ring + slot * 2 * kTileBytes<kZ>, values = keys + kTileBytes<kZ>;
    const int low = item.start - at, high = item.end - at;
    if (low > 0 || high < kCacheTile) clear_rows<kZ, HalvesApart>(values, low, high);
    attend_tile<kZ, HalvesApart>(q, keys, values, a.scale * kLog2e, low, high, state);
    __syncwarp();  // the slot may be filled again
  }
  copies_wait<0>();
}

template <int kZ>
__global__ void __launch_bounds__(kThreads, kBlocks) decode_kernel(Attend a) {
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<kZ>*>(raw);
  const int warp = threadIdx.x / kWarp;
  const uint32_t ring = shared_address(shared.ring[warp]);
  bool any_short = false;
  sum_counts(a.sequences, shared.spans, [&](int b) {
    any_short |= is_short(a, b);
    return num_spans(a, b);
  });
  if (__syncthreads_or(any_short)) {
    const int blocks = static_cast<int>(gridDim.x);
    attend_short<kZ, 2 * kStages>(a, warp * blocks + static_cast<int>(blockIdx.x), kWarps * blocks,
                                  ring);
  }
  const Pieces pieces{shared.spans, 1};
  const int items = num_pieces(a, pieces);
  for (int index = static_cast<int>(blockIdx.x); index < items;
       index += static_cast<int>(gridDim.x)) {
    const DecodeItem item = find_decode_item(a, pieces, index);
    DecodeState<kZ> state;
    __syncthreads();  // the last item's states have been read
    run_warp<kZ>(a, item, ring, state);
    __syncthreads();  // all rings are empty
    share_state<kZ, kWarps>(state, item.heads, shared.states);
    __syncthreads();
    Quarter piece[Quads<kZ, kWarps>::kEach];
    merge_states<kZ, kWarps>(a, item, shared.states, warp, piece);
    if (item.pieces == 1) continue;
    __syncthreads();
    if (threadIdx.x == 0) shared.is_last = is_last_piece(a, item);
    __syncthreads();
    if (shared.is_last) merge_pieces<kZ, kWarps>(a, item, pieces.spans, warp);
  }
}

template <int kZ>
void launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(Shared<kZ>);
  // Where this fails, so does every launch, and the step tells it.
  static const cudaError_t raised =
      cudaFuncSetAttribute(decode_kernel<kZ>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  (void)raised;
  decode_kernel<kZ><<<num_multiprocessors() * kBlocks, kThreads, kBytes, stream>>>(args);
}

}  // namespace

void attend_decode_sm80(const Attend& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (args.head_dim == 64) return launch<64>(args, stream);
  launch<128>(args, stream);
}

}  // namespace switchyard::cuda
