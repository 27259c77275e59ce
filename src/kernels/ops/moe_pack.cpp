// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/moe_pack.h"

#include <algorithm>

namespace switchyard {

void moe_pack_w13(const uint16_t* gate, const uint16_t* up, int64_t width, int64_t ffn_width,
                  uint16_t* packed) noexcept {
  const int64_t inputs = MoePack::padded(width);
  std::fill_n(packed, MoePack::w13_bytes(width, ffn_width) / 2, uint16_t{0});
  for (int64_t f = 0; f < ffn_width; ++f) {
    for (int64_t k = 0; k < width; ++k) {
      packed[MoePack::byte_of(MoePack::w13_row(f, 0), k, inputs) / 2] = gate[f * width + k];
      packed[MoePack::byte_of(MoePack::w13_row(f, 1), k, inputs) / 2] = up[f * width + k];
    }
  }
}

void moe_pack_w2(const uint16_t* down, int64_t width, int64_t ffn_width,
                 uint16_t* packed) noexcept {
  const int64_t inputs = MoePack::padded(ffn_width);
  std::fill_n(packed, MoePack::w2_bytes(width, ffn_width) / 2, uint16_t{0});
  for (int64_t row = 0; row < width; ++row) {
    for (int64_t k = 0; k < ffn_width; ++k) {
      packed[MoePack::byte_of(row, k, inputs) / 2] = down[row * ffn_width + k];
    }
  }
}

}  // namespace switchyard
