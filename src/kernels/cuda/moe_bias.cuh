// SPDX-License-Identifier: Apache-2.0
// Biases of experts, by packed row: what the sums of a product start from.
#pragma once
#include <cstdint>

#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda {

enum class Product : uint8_t { up, down };

/// Where a product's biases are: up [E, 2, F], gate before up; down [E, D]. Padded rows have none.
struct RowBias {
  const float* values = nullptr;  ///< null: all are 0
  int width = 0;                  ///< F or D
};

template <Product kProduct>
__device__ __forceinline__ float bias_of(const RowBias& bias, int64_t expert, int row) {
  if (bias.values == nullptr) return 0;
  if constexpr (kProduct == Product::down) {
    return row < bias.width ? bias.values[expert * bias.width + row] : 0;
  }
  const int hidden = static_cast<int>(MoePack::w13_hidden(row));
  if (hidden >= bias.width) return 0;
  return bias.values[(expert * 2 + MoePack::w13_up(row)) * bias.width + hidden];
}

}  // namespace switchyard::cuda
