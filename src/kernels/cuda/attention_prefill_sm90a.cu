// SPDX-License-Identifier: Apache-2.0
// Prefill attention on Hopper: items of up to 128 rows (token, query head) of one kv head, so that a group's heads share each tile
// of K and V; one block of a multiprocessor, three groups of four warps: two consume, one loads. A block claims the next item
// while it works, those that see most first.
// Keys are visited in ascending tiles of 128 at fixed positions, so a token's bits depend on its own keys alone.
// Floor: 4 T context H Z / 2 operations when causal. Source: Shah et al. 2024, arXiv 2407.08608 (FlashAttention-3).
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda/attention_prefill_sm90a_math.cuh"
#include "kernels/cuda/chain.cuh"

namespace switchyard::cuda {
namespace {

template <int kZ>
__device__ void init_barriers(PrefillShared<kZ>& shared) {
  for (int i = 0; i < kPrefillStages; ++i) {
    barrier_init(shared_address(&shared.full[i]), 1);
    barrier_init(shared_address(&shared.empty[i]), 4 * kConsumers);
  }
  barrier_init(shared_address(&shared.queries_full), 1);
  barrier_init(shared_address(&shared.queries_empty), 4 * kConsumers);
  for (int i = 0; i < kPrefillQueue; ++i) {
    barrier_init(shared_address(&shared.queue_full[i]), 1);
    barrier_init(shared_address(&shared.queue_empty[i]), kPrefillReaders);
  }
  barrier_init_done();
}

template <int kZ, int kBox>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_kernel(const __grid_constant__ Attend a, const __grid_constant__ PrefillMaps maps) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared<kZ>*>(raw);
  if (threadIdx.x == kPrefillThreads - 1) {
    tensor_prefetch(maps.k);
    tensor_prefetch(maps.v);
    tensor_prefetch(maps.q);
    init_barriers(shared);
  }
  __syncthreads();
  let_next_begin();
  if (threadIdx.x < kConsumers * 128) {
    take_registers<232>();
    wait_for_previous();
    attend_items(shared, a);
  } else {
    give_registers<40>();
    const int warp = static_cast<int>(threadIdx.x) / kWarp - kConsumers * 4;
    if (warp == 0) {
      claim_and_send<kZ, kBox>(shared, a, maps);
    } else {
      wait_for_previous();
      if (warp == 1) send_queries(shared, a, maps);
    }
  }
}

template <int kZ, int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(PrefillShared<kZ>);
  static const bool raised = [] {
    return cudaFuncSetAttribute(prefill_kernel<kZ, kBox>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) == cudaSuccess;
  }();
  const int share = args.heads / args.kv_heads;
  PrefillMaps maps;
  if (!raised ||
      !make_query_map(maps.q, args.q, args.tokens, args.heads, kZ,
                      static_cast<unsigned>(item_tokens(share)), static_cast<unsigned>(share)) ||
      !make_cache_map(maps.k, args.k_cache, kZ, kBox, 1) ||
      !make_cache_map(maps.v, args.v_cache, kZ, kBox, 1)) {
    return false;
  }
  launch_chained(prefill_kernel<kZ, kBox>, dim3(static_cast<unsigned>(num_multiprocessors())),
                 kPrefillThreads, kBytes, stream, args, maps);
  return true;
}

template <int kBox>
bool launch(const Attend& args, StreamHandle stream) {
  return args.head_dim == 64 ? launch<64, kBox>(args, stream) : launch<128, kBox>(args, stream);
}

}  // namespace

bool attend_prefill_sm90a(const Attend& args, StreamHandle stream) noexcept {
  // The highest product must have the highest score, and an item a token.
  if (!is_sm90() || !(args.scale > 0) || args.heads / args.kv_heads > kItemRows) return false;
  if (args.tokens == 0) return true;
  return box_of(args) == kUnit ? launch<kUnit>(args, stream) : launch<kCacheTile>(args, stream);
}

}  // namespace switchyard::cuda
