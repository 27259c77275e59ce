// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/l2_sides.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace switchyard {

int32_t l2_far_cycles(std::span<const int32_t> cycles) {
  constexpr int32_t kLeastGap = 40;  // an H200 has some 140; inside a group there are 15 at most
  std::vector<int32_t> sorted(cycles.begin(), cycles.end());
  std::ranges::sort(sorted);
  const size_t quarter = sorted.size() / 4;
  int32_t widest = 0, far = 0;
  for (size_t i = std::max<size_t>(quarter, 1); i + quarter <= sorted.size() && i < sorted.size();
       ++i) {
    if (sorted[i] - sorted[i - 1] <= widest) continue;
    widest = sorted[i] - sorted[i - 1];
    far = sorted[i];
  }
  return widest >= kLeastGap ? far - widest / 2 : 0;
}

uint32_t l2_page_mask(std::span<const uint8_t> chunk_sides) {
  const size_t count = chunk_sides.size();
  uint32_t chunks = 0;  // the mask in units of chunks
  for (uint32_t bit = 1; bit < count; bit *= 2) {
    if (chunk_sides[bit] != chunk_sides[0]) chunks |= bit;
  }
  if ((chunks & 1) == 0) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto parity = static_cast<uint8_t>(std::popcount(i & chunks) % 2);
    if ((chunk_sides[i] ^ chunk_sides[0]) != parity) return 0;
  }
  return chunks * L2Sides::kChunkBytes;
}

}  // namespace switchyard
