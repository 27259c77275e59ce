// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel: both grouped products of a MoE layer in one persistent launch. See moe_ffn_sm90a.cu.
#pragma once
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/moe_ffn_sm90a_ahead.cuh"
#include "kernels/cuda/moe_ffn_sm90a_math.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

template <class TileT>
__device__ __forceinline__ void init_barriers(Shared<TileT>& shared) {
  for (int i = 0; i < TileT::kStages; ++i) {
    barrier_init(shared_address(&shared.full[i]), TileT::kApart ? 1 : 1 + kGatherThreads);
    barrier_init(shared_address(&shared.empty[i]), 4 * kNumConsumers);
  }
  for (int i = 0; TileT::kApart && i < TileT::kTokenUnits; ++i) {
    barrier_init(shared_address(&shared.tokens_full[i]), kGatherThreads);
    barrier_init(shared_address(&shared.tokens_empty[i]), 4 * kNumConsumers);
  }
  for (int i = 0; i < TileT::kPanels; ++i) {
    barrier_init(shared_address(&shared.staged[i]), TileT::kPanelWarps);
    barrier_init(shared_address(&shared.drained[i]), 1);
  }
  for (int i = 0; i < kQueue; ++i) {
    barrier_init(shared_address(&shared.queue_full[i]), 1);
    barrier_init(shared_address(&shared.queue_empty[i]), kQueueReaders);
  }
  barrier_init_done();
}

/// The last block leaves the counters zero for the next call.
__device__ __forceinline__ void leave(const MoeFfnParams& p) {
  __threadfence();
  if (atomicAdd(&p.sync[kSyncLeft], 1) != static_cast<int>(gridDim.x) - 1) return;
  for (int i = 0; i < kSyncWords; ++i) p.sync[i] = 0;
}

template <class TileT>
__global__ void __launch_bounds__(kThreads, 1)
    moe_ffn_kernel(const __grid_constant__ MoeFfnParams p) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  Shared<TileT>& shared = *reinterpret_cast<Shared<TileT>*>(bytes);
  ask_ahead<TileT>(p);
  if (threadIdx.x == 0) init_barriers(shared);
  // In this order: combine reads picks and y before it waits (combine.cu), so they must be complete when it begins.
  wait_for_previous();
  let_next_begin();  // in each multiprocessor as soon as this block has left it
  const bool claims = threadIdx.x / 32 == 4 * kNumConsumers;  // this warp
  const int asked = claims ? Claims<TileT>::ask_first(p) : 0;
  make_plan<TileT>(shared.plan, p);
  if (threadIdx.x < 128 * kNumConsumers) {
    take_registers<TileT::kConsumerRegisters>();
    consume(shared, p);
  } else {
    give_registers<TileT::kLoaderRegisters>();
    if (claims) {
      claim_and_stream(shared, p, asked);
    } else if (threadIdx.x < 128 * kNumConsumers + 32 + kGatherThreads) {
      load_tokens(shared, p);
    } else {
      send_results(shared, p);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) leave(p);
}

/// One block per multiprocessor, started while the kernel before drains.
template <class TileT>
void launch_tile(const MoeFfnParams& params, cudaStream_t stream) noexcept {
  constexpr int kBytes = static_cast<int>(sizeof(Shared<TileT>)), kMostBytes = 227 * 1024;
  static_assert(kBytes <= kMostBytes);
  cudaFuncSetAttribute(moe_ffn_kernel<TileT>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  launch_chained(moe_ffn_kernel<TileT>, dim3(static_cast<unsigned>(num_multiprocessors())),
                 kThreads, kBytes, stream, params);
}

template <class TileT>
constexpr TileKernel tile_kernel(const char* name) {
  return {name, TileT::kRows, TileT::kTokens, launch_tile<TileT>};
}

}  // namespace switchyard::cuda::sm90a
