// SPDX-License-Identifier: Apache-2.0
// Launches that follow each other closely (programmatic dependent launch, on sm_90; other devices launch plainly).
//
// A chained launch may begin while the one before it still runs. What it does before wait_for_previous() must touch nothing
// that an earlier launch of the chain writes, except what was complete when the launch before let this one begin: it may set itself up and
// ask for weights, also by counters that decide nothing else (moe_ffn_sm90a_ahead.cuh). Every chained kernel calls it at least once in every thread, so that the end of a launch stands for the end of all before it. let_next_begin() lets the next one in early.
// Source: CUDA programming guide, "Programmatic Dependent Launch and Synchronization".
#pragma once
#include <cstdint>

#include <cuda_runtime.h>
#include <nv/target>

#include "base/environment.h"

namespace switchyard::cuda {

__device__ __forceinline__ void wait_for_previous() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}
__device__ __forceinline__ void let_next_begin() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
}

// Asks for `bytes` (a multiple of 16) to be in the L2 soon. One thread calls it.
__device__ __forceinline__ void ask_for(const void* from, uint32_t bytes) {
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes)
                             : "memory");))
}

// This block's share of memory that a later launch reads; one thread calls it.
__device__ __forceinline__ void ask_for_share(const void* from, int64_t bytes, int64_t block,
                                              int64_t blocks) {
  constexpr int64_t kLine = 128, kMost = 16384;
  const int64_t lines = bytes / kLine;
  const int64_t begin = lines * block / blocks * kLine, end = lines * (block + 1) / blocks * kLine;
  for (int64_t at = begin; at < end; at += kMost) {
    const int64_t left = end - at;
    ask_for(static_cast<const char*>(from) + at,
            static_cast<uint32_t>(left < kMost ? left : kMost));
  }
}

// Whether the current device chains launches; asked once. Only machine code for sm_90 has the waits: newer devices run what the
// driver makes of sm_80's PTX, and files without code for sm_90 must not chain.
inline bool device_chains() {
  static const bool chains = [] {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9 && environment("SWITCHYARD_CHAIN") != "0";
  }();
  return chains;
}

// All chained kernels want the same split of L1 and shared memory: to change it, a multiprocessor must first run empty. Errors stay
// with the device until it is asked.
template <class... Parameters, class... Arguments>
void launch_chained(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t shared_bytes,
                    cudaStream_t stream, const Arguments&... arguments) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute chained{};
  chained.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  chained.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &chained;
  config.numAttrs = device_chains() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

// Clusters of `blocks` blocks that the device holds at once, when nothing else is on it; 0 if it does not say. Raises the kernel's limit
// of shared memory.
template <class... Parameters>
int clusters_at_once(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                     int shared_bytes) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          shared_bytes) == cudaSuccess &&
                     cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
  if (!known) (void)cudaGetLastError();  // or the next launch would be blamed
  return known ? clusters : 0;
}

}  // namespace switchyard::cuda
