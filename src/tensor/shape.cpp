// SPDX-License-Identifier: Apache-2.0
// Products of extents, checked where they come from a file.
#include "tensor/shape.h"

#include <fmt/format.h>

namespace switchyard {

int64_t Shape::elements() const noexcept {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= extents_[i];
  return product;
}

std::optional<int64_t> Shape::checked_elements() const noexcept {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) {
    if (extents_[i] < 0 || __builtin_mul_overflow(product, extents_[i], &product)) {
      return std::nullopt;
    }
  }
  return product;
}

std::string Shape::text() const {
  return fmt::format("[{}]", fmt::join(extents_.begin(), extents_.begin() + rank_, ", "));
}

Strides row_major(const Shape& shape) noexcept {
  Strides strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

}  // namespace switchyard
