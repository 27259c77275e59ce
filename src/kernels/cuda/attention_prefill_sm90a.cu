// SPDX-License-Identifier: Apache-2.0
// Prefill attention on Hopper: items of up to 128 rows (token, query head) of one kv head, so that a group's heads share each tile
// of K and V; one block of a multiprocessor, three groups of four warps: two consume, one loads. A block claims the next item
// while it works, those that see most first. Where all are at work then, items have 64 rows and one group consumes: the longest
// item is what such a launch takes.
// Keys are visited in ascending tiles of 128 at fixed positions, so a token's bits depend on its own keys alone.
// Floor: 4 T context H Z / 2 operations when causal. Source: Shah et al. 2024, arXiv 2407.08608 (FlashAttention-3).
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda/attention_prefill_sm90a_math.cuh"
#include "kernels/cuda/chain.cuh"

namespace switchyard::cuda {
namespace {

template <class TileT>
__device__ void init_barriers(PrefillShared<TileT>& shared) {
  for (int i = 0; i < kPrefillStages; ++i) {
    barrier_init(shared_address(&shared.full[i]), 1);
    barrier_init(shared_address(&shared.empty[i]), 4 * TileT::kGroups);
  }
  barrier_init(shared_address(&shared.queries_full), 1);
  barrier_init(shared_address(&shared.queries_empty), 4 * TileT::kGroups);
  for (int i = 0; i < kPrefillQueue; ++i) {
    barrier_init(shared_address(&shared.queue_full[i]), 1);
    barrier_init(shared_address(&shared.queue_empty[i]), TileT::kReaders);
  }
  barrier_init_done();
}

template <class TileT, int kBox>
__global__ void __launch_bounds__(TileT::kThreads, 1)
    prefill_kernel(const __grid_constant__ Attend a, const __grid_constant__ PrefillMaps maps) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared<TileT>*>(raw);
  if (threadIdx.x == TileT::kThreads - 1) {
    tensor_prefetch(maps.k);
    tensor_prefetch(maps.v);
    tensor_prefetch(maps.q);
    init_barriers(shared);
  }
  __syncthreads();
  let_next_begin();
  constexpr bool kDealsRegisters = TileT::kGroups == 2;  // else there are enough
  if (threadIdx.x < TileT::kGroups * 128) {
    if constexpr (kDealsRegisters) take_registers<232>();
    wait_for_previous();
    attend_items(shared, a);
  } else {
    if constexpr (kDealsRegisters) give_registers<40>();
    const int warp = static_cast<int>(threadIdx.x) / kWarp - TileT::kGroups * 4;
    if (warp == 0) {
      claim_and_send<TileT, kBox>(shared, a, maps);
    } else {
      wait_for_previous();
      if (warp == 1) send_queries(shared, a, maps);
    }
  }
}

template <class TileT, int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(PrefillShared<TileT>);
  static const bool raised = [] {
    return cudaFuncSetAttribute(prefill_kernel<TileT, kBox>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) == cudaSuccess;
  }();
  const int share = args.heads / args.kv_heads;
  PrefillMaps maps;
  if (!raised ||
      !make_query_map(maps.q, args.q, args.tokens, args.heads, TileT::kZ,
                      static_cast<unsigned>(TileT::tokens(share)), static_cast<unsigned>(share)) ||
      !make_cache_map(maps.k, args.k_cache, TileT::kZ, kBox, 1) ||
      !make_cache_map(maps.v, args.v_cache, TileT::kZ, kBox, 1)) {
    return false;
  }
  launch_chained(prefill_kernel<TileT, kBox>, dim3(static_cast<unsigned>(num_multiprocessors())),
                 TileT::kThreads, kBytes, stream, args, maps);
  return true;
}

// Items of 64 rows at most, of sequences of any lengths.
int64_t half_items(const Attend& args) {
  const int64_t each = PrefillTile<64, 1>::tokens(args.heads / args.kv_heads);
  return args.kv_heads * ((args.tokens + args.sequences * (each - 1)) / each);
}

template <int kZ, int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  const bool halves = args.heads / args.kv_heads <= PrefillTile<kZ, 1>::kRows &&
                      half_items(args) <= num_multiprocessors();
  return halves ? launch<PrefillTile<kZ, 1>, kBox>(args, stream)
                : launch<PrefillTile<kZ, 2>, kBox>(args, stream);
}

template <int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  return args.head_dim == 64 ? launch<64, kBox>(args, stream) : launch<128, kBox>(args, stream);
}

}  // namespace

bool attend_prefill_sm90a(const Attend& args, StreamHandle stream) noexcept {
  // The highest product must have the highest score, and an item a token.
  if (!is_sm90() || !(args.scale > 0) || args.heads / args.kv_heads > PrefillTile<64, 2>::kRows)
    return false;
  if (args.tokens == 0) return true;
  return box_of(args) == kUnit ? launch<kUnit>(args, stream) : launch<kCacheTile>(args, stream);
}

}  // namespace switchyard::cuda
