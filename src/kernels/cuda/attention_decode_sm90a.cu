// SPDX-License-Identifier: Apache-2.0
// Decode attention on Hopper, bound by the stream of K and V: one block of a multiprocessor. First all warps take the short sequences,
// an item for a warp or, where there are few, for four (attention_decode_short.cuh); then they have roles:
//
//   scout, producer  a warp each; see attention_decode_sm90a_load.cuh
//   consumer         two groups of four warps, a ring of units each
//   merger           two warps make one of the groups' states, and one of a pair of spans; meanwhile the consumers are at the next
//                    item
//   finisher         two groups of two warps, which take pieces in turn: when a piece is the last of its token, they make one of
//                    its pieces. The fence before a piece is counted takes microseconds when the memory is busy, and nobody else
//                    waits for it
// 128 KiB are on their way or in use in each multiprocessor; a third of that covers the latency of memory at full rate.
// Floor: the bytes of K and V of every position, once. Source: Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023, arXiv
// 2309.06180.
#include <cstddef>

#include "kernels/cuda/attention_decode_short.cuh"
#include "kernels/cuda/attention_decode_sm90a_math.cuh"
#include "kernels/cuda/attention_entries.h"

namespace switchyard::cuda {
namespace {

// ---- what there is to do

// Whole block; ends in a barrier.
template <class Is>
__device__ __forceinline__ bool any_of(const Attend& a, const Is& is) {
  bool found = false;
  for (int b = threadIdx.x; b < a.sequences; b += kDecodeThreads) found |= is(b);
  return __syncthreads_or(found);
}

// Whole block. Pairs of spans, where there are three for two multiprocessors at least.
__device__ __forceinline__ Pieces count_pieces(const Attend& a, ItemCounts& counts) {
  sum_counts(a.sequences, counts, [&](int b) { return num_spans(a, b); });
  if (num_pieces(a, {counts, 1}) < 3 * static_cast<int>(gridDim.x)) return {counts, 1};
  sum_counts(a.sequences, counts, [&](int b) { return (num_spans(a, b) + 1) / 2; });
  return {counts, 2};
}

// ---- short sequences

// All warps, before they take their roles, with the memory of the rings.
template <int kZ>
__device__ __forceinline__ void attend_short_items(DecodeShared<kZ>& shared, const Attend& a) {
  constexpr int kBytes = offsetof(DecodeShared<kZ>, exchange), kWarps = 8;
  constexpr int kSlots = kBytes / kWarps / kTileBytes<kZ>;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int warp = threadIdx.x / kWarp, group = warp / kUnitTiles;
  const uint32_t rings = shared_address(shared.ring);
  if (num_short_items(a) <= kShortGroups * blocks) {
    attend_short_group<kZ>(a, group * blocks + block, 1 + group, shared.exchange[group],
                           rings + group * (kBytes / kShortGroups));
  } else if (warp < kWarps) {
    attend_short<kZ, kSlots>(a, warp * blocks + block, kWarps * blocks,
                             rings + warp * (kBytes / kWarps));
  }
  wait_for_previous();   // every thread does
  fence_async_shared();  // before the copy engine writes there
}

template <int kZ, int kBox>
__global__ void __launch_bounds__(kDecodeThreads, 1)
    decode_kernel(const __grid_constant__ Attend a, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<DecodeShared<kZ>*>(raw);
  if (threadIdx.x == kDecodeThreads - 1) {
    tensor_prefetch(maps.k);
    tensor_prefetch(maps.v);
    init_barriers(shared);
  }
  let_next_begin();
  if (any_of(a, [&](int b) { return is_short(a, b); })) {
    attend_short_items(shared, a);
    if (!any_of(a, [&](int b) { return num_spans(a, b) > 0; })) return;
  }
  const Pieces pieces = count_pieces(a, shared.pieces);
  const int warp = threadIdx.x / kWarp;
  if (warp == kScout) {
    scout<kZ, kBox>(shared, a, pieces);
    return;
  }
  wait_for_previous();  // what is above depends on the step's arrays alone
  if (warp < kMerger) {
    consume<kZ>(shared, a);
  } else if (warp < kFinisher) {
    merge(shared, a);
  } else if (warp < kProducer) {
    finish(shared, a, pieces.spans);
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
                 kDecodeThreads, kBytes, stream, args, maps);
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
