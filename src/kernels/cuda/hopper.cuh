// SPDX-License-Identifier: Apache-2.0
// Instructions of Hopper beyond bulk_copy.cuh: more of mbarriers, bulk stores, register hand-over, clusters, transposed stores;
// one function each.
// Source: PTX ISA 9.0, sections "mbarrier", "cp.async.bulk", "setmaxnreg", "stmatrix", "barrier.cluster", "mapa".
#pragma once
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda {

// ---- mbarrier -------------------------------------------------------------------------------------------------

/// A place in a ring of stages, and the parity of its barriers' phase.
template <int kStages>
struct RingCursor {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count)
               : "memory");
}
/// The announcement of bytes alone, without an arrival.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// ---- copies ---------------------------------------------------------------------------------------------------

/// Shared memory to contiguous global memory, in a group of this thread.
__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
               "r"(source), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, uint32_t bytes,
                                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          destination),
      "r"(source), "r"(bytes), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bulk_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// All stores of this thread are written.
__device__ __forceinline__ void bulk_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// All stores of this thread have read what they send.
__device__ __forceinline__ void bulk_store_read_wait() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// A policy for what is read once: it gives way in the L2 before all else.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// A policy for what is written and soon read, if it is `kept`: it gives way after all else, so its lines must be let go of at last.
__device__ __forceinline__ uint64_t evict_last_if(bool kept) {
  uint64_t last, normal;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return kept ? last : normal;
}
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

/// 16 bytes from global to shared memory in the background, not through L1.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/// This thread's arrival, once all its earlier copy_16 have landed.
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// ---- ordering -------------------------------------------------------------------------------------------------

/// Orders ordinary shared-memory accesses of this thread against tensor cores and the copy engine.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The same for global memory.
__device__ __forceinline__ void fence_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

__device__ __forceinline__ void add_release(int* counter, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}
__device__ __forceinline__ int load_relaxed(const int* counter) {
  int value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
__device__ __forceinline__ int load_acquire(const int* counter) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

// ---- blocks and registers -------------------------------------------------------------------------------------

/// A barrier of the block whose number and threads are known when compiling.
template <int kBarrier, int kBarrierThreads>
__device__ __forceinline__ void fixed_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kBarrierThreads) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// 1 / x to within 1 ulp.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// ---- clusters of blocks ---------------------------------------------------------------------------------------

/// Makes initialised mbarriers known to the cluster, after its next barrier.
__device__ __forceinline__ void cluster_barriers_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Whole warps. What was written is not handed on by it: its release would be a fence of the whole device, so mbarriers do that.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// The same place in the shared memory of the cluster's block of this rank.
__device__ __forceinline__ uint32_t address_in_block(uint32_t own, int rank) {
  uint32_t at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(own), "r"(rank));
  return at;
}

// ---- fragments ------------------------------------------------------------------------------------------------

/// Stores 1, 2 or 4 transposed 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(a)
               : "memory");
}
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(a), "r"(b)
               : "memory");
}
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t a, uint32_t b,
                                                 uint32_t c, uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

}  // namespace switchyard::cuda
