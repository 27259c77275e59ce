// SPDX-License-Identifier: Apache-2.0
// Bulk copies of boxes of a paged cache [rows, Z], or of queries, in bf16 into shared memory: [rows][halves][64 values of z], with the 128-byte
// swizzle: 16-byte chunk c of the i-th 128 bytes at c ^ (i % 8). A box of all Z reads the cache as it lies. sm_90.
// Source: PTX ISA 9.0, "cp.async.bulk.tensor"; CUDA driver API, "cuTensorMapEncodeTiled".
#pragma once
#include <cstdint>

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace switchyard::cuda {

/// Copies the box at (row, half): rows from `row` on, 64 values of z from 64 * half on.
__device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap& map, int row, int half,
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(half), "r"(row), "r"(barrier)
      : "memory");
}
/// Copies the box of queries (make_query_map) at (token, head, half).
__device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap& map, int half, int head,
                                            int token, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(0), "r"(half), "r"(head), "r"(token), "r"(barrier)
      : "memory");
}
/// The same for what is read once: its lines give way first in the L2.
__device__ __forceinline__ void tensor_copy_once(uint32_t to, const CUtensorMap& map, int row,
                                                 int half, uint32_t barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(half), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}
/// Brings the map near, ahead of the first copy.
__device__ __forceinline__ void tensor_prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// The driver's function, found without linking the driver; null where it is too old.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) (void)cudaGetLastError();  // or the next launch would be blamed
    const bool ok = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(ok ? entry : nullptr);
  }();
  return found;
}

/// Describes boxes of `box_rows` rows x `halves` x 64 values. False when the driver refuses.
inline bool make_cache_map(CUtensorMap& map, const void* cache, int head_dim, unsigned box_rows,
                           unsigned halves) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  constexpr cuuint64_t kMostRows = cuuint64_t{1} << 31;  // tables name no row behind the end
  const auto width = static_cast<cuuint64_t>(head_dim);
  const cuuint64_t size[3] = {64, width / 64, kMostRows}, stride[2] = {128, width * 2};
  const cuuint32_t box[3] = {64, halves, box_rows}, step[3] = {1, 1, 1};
  // Without promotion: with it whole boxes arrive up to 6 % slower.
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(cache), size, stride,
                box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Describes boxes of box_tokens x box_heads x 64 values of [tokens, heads, Z]. False when the driver refuses.
inline bool make_query_map(CUtensorMap& map, const void* q, int64_t tokens, int heads, int head_dim,
                           unsigned box_tokens, unsigned box_heads) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  const auto count = static_cast<cuuint64_t>(heads), width = static_cast<cuuint64_t>(head_dim);
  const cuuint64_t size[4] = {64, width / 64, count, static_cast<cuuint64_t>(tokens)};
  const cuuint64_t stride[3] = {128, width * 2, count * width * 2};
  const cuuint32_t box[4] = {64, 1, box_heads, box_tokens}, step[4] = {1, 1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(q), size, stride, box,
                step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Whether the current device is of this generation; asked once.
inline bool is_sm90() {
  static const bool found = [] {
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major == 9 && minor == 0;
  }();
  return found;
}

}  // namespace switchyard::cuda
