// SPDX-License-Identifier: Apache-2.0
// Where the blocks of a packed weight matrix lie (ops/moe_pack.h), for kernels that stream them; and the side of the L2 that they are
// on (ops/l2_sides.h).
#pragma once
#include "kernels/ops/l2_sides.h"
#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda {

/// 32 rows of one expert's matrix of `rows` x `inputs`, both padded: a block of 4 KiB for each step of 64 inputs. With a side mask, of
/// L2Sides, the matrix is placed: blocks are one of each pair of 8 KiB. Without, they follow each other.
class PackedStrip {
 public:
  __device__ __forceinline__ PackedStrip(const void* matrix, int64_t expert, int strip, int rows,
                                         int inputs, uint32_t side_mask)
      : side_mask_(side_mask) {
    const int strips = rows / MoePack::kBlockRows;
    const int64_t before = side_mask == 0 ? expert * strips + strip
                                          : expert * (strips / 2) + MoePack::pair_of(strip, strips);
    half_ = side_mask == 0 ? 0 : MoePack::half_of(strip, strips);
    first_ =
        static_cast<const char*>(matrix) + before * (inputs / MoePack::kAtomInputs) * step_bytes();
  }
  /// From what step() says of one step to the next.
  __device__ __forceinline__ int step_bytes() const {
    return side_mask_ == 0 ? MoePack::kBlockBytes : MoePack::kPairBytes;
  }
  /// The block of a step, or the pair that it is in.
  __device__ __forceinline__ const char* step(int number) const {
    return first_ + int64_t{number} * step_bytes();
  }
  __device__ __forceinline__ const char* block_in(const char* step) const {
    if (side_mask_ == 0) return step;
    const auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(step));
    return step + ((half_ ^ __popc(low & side_mask_)) & 1) * MoePack::kBlockBytes;
  }
  __device__ __forceinline__ const char* block(int step_number) const {
    return block_in(step(step_number));
  }
  __device__ __forceinline__ int half() const { return static_cast<int>(half_); }

 private:
  const char* first_;
  uint32_t half_, side_mask_;
};

/// The side that is near the multiprocessor of this block.
__device__ __forceinline__ int side_of_this_block(const L2Sides& sides) {
  uint32_t multiprocessor;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  return sides.near[multiprocessor / 32 % L2Sides::kWords] >> multiprocessor % 32 & 1;
}

}  // namespace switchyard::cuda
