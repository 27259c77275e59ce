// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/row_major.h"

#include "kernels/ops/weight_source.h"

namespace switchyard {
namespace {

int64_t slot_bytes(const GroupedGemm::Problem& problem) noexcept {
  return (row_major_elements(problem) * dtype_bytes(problem.weight) + 63) / 64 * 64;
}

template <class To>
void copy_matrix(const GroupedGemm::Problem& problem, const TensorView& view, To* to) {
  with_weight_type(view, [&](const auto* from) {
    for (int64_t n = 0; n < problem.n; ++n) {
      for (int64_t k = 0; k < problem.k; ++k) {
        to[n * problem.k + k] = convert_weight<To>(from[n * view.stride[0] + k * view.stride[1]]);
      }
    }
  });
}

template <class To>
void pack_as(const GroupedGemm::Problem& problem, const TensorView& gate, const TensorView* up,
             To* to) {
  copy_matrix(problem, gate, to);
  if (up != nullptr) copy_matrix(problem, *up, to + problem.n * problem.k);
}

void pack(const GroupedGemm::Problem& problem, const TensorView& gate, const TensorView* up,
          std::byte* to) noexcept {
  if (problem.weight == DType::bf16) {
    pack_as(problem, gate, up, reinterpret_cast<Bf16*>(to));
  } else {
    pack_as(problem, gate, up, reinterpret_cast<float*>(to));
  }
}

}  // namespace

const GroupedGemm::Packing kRowMajorPacking{"row_major", slot_bytes, pack};

}  // namespace switchyard
