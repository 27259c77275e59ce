// SPDX-License-Identifier: Apache-2.0
// What measurements of the MoE layer need beside the layer: the row moves of the naive loop (moe/baseline/naive.h), and a
// probe of the memory.
#pragma once
#include <cstdint>

#include "kernels/cuda/step.h"

namespace switchyard::cuda {

/// to[r] = x[row_token[r]], bf16.
struct GatherRows {
  const void* x = nullptr;             ///< [T, D], D % 8 == 0
  const int32_t* row_token = nullptr;  ///< [R]
  int64_t rows = 0, width = 0;
  void* to = nullptr;  ///< [R, D]
};
void gather_rows(const GatherRows& args, StreamHandle stream) noexcept;

/// y[row_token[r]] += row_weight[r] * rows[r]; the tokens of one call are distinct.
struct AddRows {
  const float* rows = nullptr;         ///< [R, D], D % 4 == 0
  const int32_t* row_token = nullptr;  ///< [R]
  const float* row_weight = nullptr;   ///< [R]
  int64_t num_rows = 0, width = 0;
  float* y = nullptr;  ///< [T, D]
};
void add_rows(const AddRows& args, StreamHandle stream) noexcept;

/// Reads `bytes` (a multiple of 1 MiB) once, as fast as the memory gives them. `sink` [1] keeps the reads alive.
void read_memory(const void* from, int64_t bytes, uint32_t* sink, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
