// SPDX-License-Identifier: Apache-2.0
// The two sides of a large device's L2. Each has half of the memory behind it and half of the multiprocessors before it; what is read
// from the other side crosses a link that carries about half of the memory's rate. A kernel that reads both sides alike can be bound by
// this link before it is bound by memory.
//
//   side    of an address: the parity of some of its bits. The lowest of them is bit 12, so the two blocks of 4 KiB in an aligned 8 KiB
//           lie on opposite sides
//   placed  weights that are placed by sides (ops/moe_pack.h) have the first of each such pair on side 0
// Which addresses are on which side of the device is measured (kernels/cuda/l2_memory.h). Were it wrong, kernels would be slower and results the
// same: to them the parity is part of the layout, and a multiprocessor's side is advice.
#pragma once
#include <cstdint>
#include <span>

namespace switchyard {

struct L2Sides {
  static constexpr int kWords = 8, kMost = 32 * kWords;  ///< numbers of multiprocessors
  static constexpr int kChunkBytes = 4096;

  uint32_t mask = 0;  ///< the bits of an address; 0: sides are not known, nothing is placed by them
  uint32_t near[kWords] = {};  ///< bit i: multiprocessor i is near side 1
};

/// The least cycles of far reads, from cycles of both kinds: they must fall into two groups of a quarter at least, with a gap between.
/// 0: they do not.
int32_t l2_far_cycles(std::span<const int32_t> cycles);
/// The bits of an address inside a page whose parity is its side, from the sides of the page's chunks of 4 KiB (a power of two of them).
/// 0: no such bits explain them, or neighbours are not on opposite sides.
uint32_t l2_page_mask(std::span<const uint8_t> chunk_sides);

}  // namespace switchyard
