// SPDX-License-Identifier: Apache-2.0
// Permute: rows out to their slots (gather) and back to their tokens (combine).
#pragma once
#include <cstdint>

#include "kernels/op.h"
#include "kernels/ops/grouped_gemm.h"

namespace switchyard {

/// y[r] = row_weight[r] * x[row_token[r]] in the layout that the next grouped GEMM reads; zeros where row_token[r] is -1,
/// a row that no token fills.
struct Gather {
  struct Problem {
    int groups = 1;     ///< S
    int64_t width = 0;  ///< D
    int64_t max_rows = 0;
    RowLayout out = RowLayout::rows_f32;
  };
  struct Args {
    const float* x = nullptr;              ///< [T, D] f32
    const int32_t* row_token = nullptr;    ///< [R] i32, -1: zeros; null: row r is token r
    const int32_t* slot_offset = nullptr;  ///< [S + 1] i32
    const float* row_weight = nullptr;     ///< [R] f32, finite, at least 0; null: as they are
    void* y = nullptr;                     ///< [R, D] in Problem::out
  };
  using Packing = NoPacking;
};

/// y[t] += scale * (sum over k of weight[t, k] * rows[pick_row[t, k]]  +  shared_weight[t] * shared[t])
/// in f32, with k ascending: the same bits whatever the thread count. A pick_row of -1 was dropped and adds nothing.
struct Combine {
  struct Problem {
    int64_t width = 0;  ///< D
    int top_k = 1;      ///< K
  };
  struct Args {
    const float* rows = nullptr;           ///< [R, D] f32
    const int32_t* pick_row = nullptr;     ///< [T, K] i32
    const float* weight = nullptr;         ///< [T, K] f32
    const float* shared = nullptr;         ///< [T, D] f32, or null
    const float* shared_weight = nullptr;  ///< [T] f32, or null: 1
    float scale = 1;
    float* y = nullptr;  ///< [T, D] f32: the residual stream
    int64_t tokens = 0;  ///< T
  };
  using Packing = NoPacking;
};

}  // namespace switchyard
