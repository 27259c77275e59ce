// SPDX-License-Identifier: Apache-2.0
// Where the blocks of the experts' weights are, for the thread of the persistent step that streams them: with few registers.
#pragma once
#include "kernels/cuda/packed_boxes.cuh"
#include "kernels/cuda/persistent_deal.cuh"

namespace switchyard::cuda::persistent {

/// A block of a strip (ops/moe_pack.h), by its address. Of placed weights it stands for half of a pair: the address is that of the block
/// that is there if the pair's first one is on side 0.
class PackedPlace {
  static constexpr uint32_t kUnit = 256, kBlock = MoePack::kBlockBytes / kUnit;

 public:
  __device__ __forceinline__ PackedPlace(const char* matrix, uint32_t block)
      : at_(units(matrix) + block * kBlock) {}
  /// So many blocks further in the strip.
  __device__ __forceinline__ PackedPlace behind(const Shape& shape, int blocks) const {
    return PackedPlace(at_ + (shape.side_mask == 0 ? kBlock : 2 * kBlock) * blocks);
  }
  /// The same place of this expert's w2, where this is of the first one's.
  __device__ __forceinline__ PackedPlace of_expert(const Shape& shape, int expert) const {
    return PackedPlace(at_ + expert * (2 * shape.up_blocks * shape.down_blocks * kBlock));
  }

  /// Of placed weights: how many blocks from here on, `most` at most, are a box; or 1.
  __device__ __forceinline__ int run(const PackedBoxes& boxes, int most) const {
    if (!boxes.usable) return 1;
    if (most >= 4 && at_ % (8 * kBlock) < 2 * kBlock) return 4;
    return most >= 2 && at_ % (4 * kBlock) < 2 * kBlock ? 2 : 1;
  }
  /// Which block of its pair it is.
  __device__ __forceinline__ uint32_t side(uint32_t side_mask) const {
    return __popc(at_ * kUnit & side_mask) & 1;
  }
  __device__ __forceinline__ uint32_t unit(const PackedBoxes& boxes) const {
    return (at_ - static_cast<uint32_t>(boxes.base / kUnit)) / (PackedBoxes::kUnitBytes / kUnit);
  }
  /// `memory` is below it, by less than 1 TiB, and aligned to 256.
  __device__ __forceinline__ const char* address(const void* memory, uint32_t side_mask,
                                                 uint32_t side) const {
    const uint32_t block = side_mask == 0 ? at_ : (at_ & ~kBlock) + side * kBlock;
    const auto* base = static_cast<const char*>(memory);
    return base + int64_t{block - units(base)} * kUnit;
  }

 private:
  __device__ __forceinline__ explicit PackedPlace(uint32_t at) : at_(at) {}
  static __device__ __forceinline__ uint32_t units(const void* at) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) / kUnit);
  }

  uint32_t at_;  // 256 bytes, in the low bits
};

/// An item of w13, counted through all experts.
__device__ __forceinline__ PackedPlace first_of_item(const Shape& shape, const char* w13,
                                                     uint32_t item) {
  const uint32_t blocks = shape.up_blocks;
  return {w13, shape.side_mask == 0 ? item * blocks : item / 2 * blocks * 2 + item % 2};
}
/// A strip of the first expert's w2.
__device__ __forceinline__ PackedPlace first_of_row(const Shape& shape, const char* w2, int strip) {
  const int strips = shape.up_blocks * 2, length = shape.down_blocks;
  if (shape.side_mask == 0) return {w2, static_cast<uint32_t>(strip * length)};
  const int pair = MoePack::pair_of(strip, strips), half = MoePack::half_of(strip, strips);
  return {w2, static_cast<uint32_t>(pair * length * 2 + half)};
}

}  // namespace switchyard::cuda::persistent
