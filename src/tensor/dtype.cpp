// SPDX-License-Identifier: Apache-2.0
// Element types by name.
#include "tensor/dtype.h"

namespace switchyard {

std::optional<DType> find_dtype(std::string_view name) noexcept {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace switchyard
