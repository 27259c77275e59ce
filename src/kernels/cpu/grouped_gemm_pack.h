// SPDX-License-Identifier: Apache-2.0
// Panels of 32 outputs: how the CPU's grouped GEMM kernels want their weights. Every kernel streams
// whole panels from the first byte to the last; gate and up of the same 32 outputs lie side by
// side.
//
//   panel32_f32   [n/32][gate, up][k][32] f32
//   panel32_bf16  [n/32][gate, up][k/32][2 tiles][16 pairs of inputs][16 outputs][2] bf16: each
//   tile is 1 KiB, the
//                 second operand of an AMX product; a row of a tile is one AVX-512 register
// n is padded to 32 and, for bf16, k to 32, with zeros.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/ops/grouped_gemm.h"

namespace switchyard::cpu {

extern const GroupedGemm::Packing kPanel32F32, kPanel32Bf16;

inline constexpr int kPanel = 32;   ///< outputs of a panel
inline constexpr int kStep = 32;    ///< inputs of a step of a bf16 panel
inline constexpr int kTile = 1024;  ///< bytes of a tile
inline constexpr int kStepBytes =
    2 * kTile;  ///< bytes of a step, both in a bf16 panel and in a block of tiles_bf16

constexpr int64_t divide_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }
constexpr int64_t panels(const GroupedGemm::Problem& problem) noexcept {
  return divide_up(problem.n, kPanel);
}
/// Matrices of a slot: gate and up, or one.
constexpr int matrices(const GroupedGemm::Problem& problem) noexcept {
  return problem.fusion == Fusion::swiglu ? 2 : 1;
}
/// Bytes of one panel of one matrix.
constexpr int64_t panel_bytes(const GroupedGemm::Problem& problem) noexcept {
  return problem.weight == DType::bf16 ? divide_up(problem.k, kStep) * kStepBytes
                                       : problem.k * kPanel * 4;
}
/// Bytes of all panels of a slot.
constexpr int64_t slot_bytes(const GroupedGemm::Problem& problem) noexcept {
  return panels(problem) * matrices(problem) * panel_bytes(problem);
}

}  // namespace switchyard::cpu
