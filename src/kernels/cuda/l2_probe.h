// SPDX-License-Identifier: Apache-2.0
// How far words of device memory are from multiprocessors: cycles of an atomic addition of 0, which the L2 does, the least of a few.
#pragma once
#include <cstdint>

#include "kernels/cuda/step.h"

namespace switchyard::cuda {

/// From every multiprocessor, one after the other, to a word of its own in a chunk of 4 KiB: cycles[i] for number i, of
/// [L2Sides::kMost] that were -1: numbers may have gaps. Works for some 10 ms before, as the clocks of an idle device are others.
void l2_cycles_by_multiprocessor(void* chunk, int multiprocessors, int32_t* cycles,
                                 StreamHandle stream) noexcept;

struct L2Distance {
  int32_t cycles, multiprocessor;
};
/// From any multiprocessor to the words base + offset[i] for i < `count`, by `blocks` blocks.
void l2_cycles_by_address(void* base, const int64_t* offset, int64_t count, int blocks,
                          L2Distance* distance, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
