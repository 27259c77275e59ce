// SPDX-License-Identifier: Apache-2.0
// Blocks of a placed strip (ops/moe_pack.h) as boxes of tensor maps: they are 4 KiB each and lie apart, and a copy for each of them takes
// who issues them longer than memory takes to bring them. sm_90.
//   unit   16 KiB that are aligned so: two pairs. Blocks are exchanged in a pair by the parity of its address; bit 13 is of the mask, so the
//          second pair of a unit is exchanged if the first is not, and a strip has the blocks 0 and 3 of a unit, or 1 and 2
//   two    a box of one unit
//   four   a box of two units that are aligned as 32 KiB: bit 14 is not of the mask, so both are alike
// Source: PTX ISA 9.0, "cp.async.bulk.tensor"; CUDA driver API, "cuTensorMapEncodeTiled". The driver takes
// strides that are no multiples of each other, and the device copies by them (tried on an H200).
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/tensor_copy.cuh"

namespace switchyard::cuda {

struct PackedBoxes {
  static constexpr uint32_t kUnitBytes = 2 * MoePack::kPairBytes;

  CUtensorMap four[2], two[2];  // by which block of its pair is the first
  uint64_t base = 0;            // aligned to two units
  bool usable = false;
};

/// Describes boxes of so many units in `bytes` from `base` on. False when the driver refuses.
inline bool make_box_map(CUtensorMap& map, uint64_t base, uint64_t bytes, int first_block,
                         unsigned units) noexcept {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  constexpr cuuint64_t kBlock = MoePack::kBlockBytes, kUnit = PackedBoxes::kUnitBytes;
  const cuuint64_t size[4] = {256, 2, 2, bytes / kUnit};
  const cuuint64_t stride[3] = {kBlock / 2, first_block == 0 ? 3 * kBlock : kBlock, kUnit};
  const cuuint32_t box[4] = {256, 2, 2, units}, step[4] = {1, 1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT64, 4,
                reinterpret_cast<void*>(base + first_block * kBlock), size, stride, box, step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Boxes of two matrices. Not usable without sides, where the mask is another or the driver refuses.
inline PackedBoxes packed_boxes(const void* first, int64_t first_bytes, const void* second,
                                int64_t second_bytes, const L2Sides& sides) noexcept {
  constexpr uint32_t kTwoPairs = 7 << 12, kSecondOther = 3 << 12;
  constexpr uint64_t kAligned = 2 * PackedBoxes::kUnitBytes;
  PackedBoxes boxes;
  if ((sides.mask & kTwoPairs) != kSecondOther) return boxes;
  const auto one = reinterpret_cast<uint64_t>(first), other = reinterpret_cast<uint64_t>(second);
  boxes.base = std::min(one, other) / kAligned * kAligned;
  const uint64_t bytes = std::max(one + first_bytes, other + second_bytes) - boxes.base + kAligned;
  boxes.usable = bytes / PackedBoxes::kUnitBytes <= INT32_MAX;  // coordinates
  for (int block = 0; block < 2; ++block) {
    boxes.usable = boxes.usable && make_box_map(boxes.four[block], boxes.base, bytes, block, 2) &&
                   make_box_map(boxes.two[block], boxes.base, bytes, block, 1);
  }
  return boxes;
}

/// Brings all maps near, ahead of the first copy. One thread.
__device__ __forceinline__ void prefetch(const PackedBoxes& boxes) {
  if (!boxes.usable) return;
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    tensor_prefetch(boxes.four[block]);
    tensor_prefetch(boxes.two[block]);
  }
}
/// Copies the box at `unit`.
__device__ __forceinline__ void box_copy(uint32_t to, const CUtensorMap& map, uint32_t unit,
                                         uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %2, %2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(0), "r"(unit), "r"(barrier), "l"(policy)
      : "memory");
}

}  // namespace switchyard::cuda
