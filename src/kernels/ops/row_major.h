// SPDX-License-Identifier: Apache-2.0
// Packing "row_major": a slot's matrices as they are in the checkpoint, [n, k] after [n, k] (gate,
// then up), in the problem's weight type. What the reference and the naive baseline read.
#pragma once
#include "kernels/ops/grouped_gemm.h"

namespace switchyard {

extern const GroupedGemm::Packing kRowMajorPacking;

/// Elements of one slot; its bytes are rounded up to 64.
constexpr int64_t row_major_elements(const GroupedGemm::Problem& problem) noexcept {
  return (problem.fusion == Fusion::swiglu ? 2 : 1) * problem.n * problem.k;
}

}  // namespace switchyard
