// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM: rows sorted by slot, each slot with its own weight matrix. The heart of a MoE layer; with one group
// it is also every dense projection of the model.
//
//   for slot s, for row r in [slot_offset[s], slot_offset[s + 1]):
//     y[r, :] = x[r, :] * W[s]^T (+ bias[s])              fusion none,   W [S, n, k]
//     y[r, :] = silu(x[r, :] * G[s]^T) * (x[r, :] * U[s]^T)   fusion swiglu, G and U [S, n, k] each
//
// Accumulation is f32 (f64 in ref) in ascending k for every (row, output), so a row's bits do not depend on the thread
// count. With `deterministic` they do not depend on the number of rows either.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/op.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace switchyard {

/// How activation rows lie in memory.
enum class RowLayout : uint8_t {
  /// [R, width] f32, dense.
  rows_f32,
  /// bf16 in 1 KiB AMX tiles. Each slot's rows are padded to blocks of 32 rows; block b holds, for every step of 32
  /// inputs, two tiles of 16 rows x 64 bytes (rows 0-15, then 16-31). Width is padded with zeros to 32; the content
  /// of padding rows is unspecified (it may be NaN) and must never reach a real row.
  /// Byte of (block b, row i, input c): b * padded(width) * 64 + (c / 32) * 2048 + (i / 16) * 1024 + (i % 16) * 64 + (c % 32) * 2.
  tiles_bf16,
};
inline constexpr int kTileRows = 32;  ///< rows of one block of tiles_bf16

/// Blocks of tiles_bf16 that `rows` rows of one slot take.
constexpr int64_t tile_blocks(int64_t rows) noexcept { return (rows + kTileRows - 1) / kTileRows; }
/// Most bytes that `max_rows` rows over `groups` slots can take in a layout.
constexpr int64_t row_layout_bytes(RowLayout layout, int64_t max_rows, int64_t width,
                                   int64_t groups) noexcept {
  if (layout == RowLayout::rows_f32) return max_rows * width * 4;
  const int64_t touched = groups < max_rows ? groups : max_rows;
  return (max_rows / kTileRows + touched) * ((width + 31) / 32 * 32) * kTileRows * 2;
}

enum class Fusion : uint8_t { none, swiglu };

/// What of a fused kernel's time its epilogue takes, in ticks of all threads, so that a report can tell the activation's
/// share of a fused phase. Counted only while tracing.
struct PhaseSplit {
  std::atomic<int64_t> busy_ticks{0}, epilogue_ticks{0};
};

struct GroupedGemm {
  struct Problem {
    int groups = 1;  ///< S
    int64_t n = 0,
            k = 0;  ///< outputs and inputs of one matrix (n of gate and of up each, with swiglu)
    int64_t max_rows = 0;        ///< most rows of one call, over all slots
    DType weight = DType::bf16;  ///< f32 or bf16: what packed weights hold
    Fusion fusion = Fusion::none;
    RowLayout in = RowLayout::rows_f32, out = RowLayout::rows_f32;
    bool bias = false;
    bool deterministic = false;  ///< a row's bits do not depend on how many rows there are
  };
  struct Args {
    const void* x = nullptr;               ///< [R, k] in Problem::in
    const int32_t* slot_offset = nullptr;  ///< [S + 1] i32
    const std::byte* weight = nullptr;     ///< S matrices, each Packing::slot_bytes apart
    const float* bias =
        nullptr;        ///< [S, n] f32 when Problem::bias; [S, 2, n] (gate, up) with swiglu
    void* y = nullptr;  ///< [R, n] in Problem::out
    PhaseSplit* split = nullptr;  ///< null unless tracing
  };
  /// A layout of packed weights. Packing of different slots may run in parallel.
  struct Packing {
    std::string_view name;  ///< "panel32_bf16"
    int64_t (*slot_bytes)(const Problem&) noexcept;
    /// Packs one slot. gate is the only matrix without swiglu; views are [n, k], f32, f16 or bf16, any strides
    /// (fused checkpoints are transposed). `to` has slot_bytes bytes, 64-byte aligned.
    void (*pack)(const Problem&, const TensorView& gate, const TensorView* up,
                 std::byte* to) noexcept;
  };
};

}  // namespace switchyard
