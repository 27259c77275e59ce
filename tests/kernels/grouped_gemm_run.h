// SPDX-License-Identifier: Apache-2.0
// One grouped GEMM on one entry of the table with everything around it poisoned: rows of padding
// hold NaN on the way in, every output holds NaN before the run, and a guard behind the outputs
// must survive it.
#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "cases/grouped_gemm.h"
#include "device/cpu_features.h"
#include "kernels/op.h"
#include "tensor/storage.h"

namespace switchyard::cases {

/// Values in [-1, 1), the same for the same seed.
inline std::vector<float> random_values(int64_t count, uint32_t seed, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto block = philox4x32({static_cast<uint32_t>(i / 4), 0, 0, 0}, {seed, 17});
    values[i] = (2 * unit_float(block[i % 4]) - 1) * scale;
  }
  return values;
}

inline bool runs_here(const Needs& needs) {
  return (needs.cpu_features & ~cpu_features().detected) == 0;
}

/// The inputs of a case: x [R, k], weights [S, parts, n, k], bias [S, parts, n], all f32 values
/// that bf16 holds exactly, so that every entry computes with the same numbers.
struct GroupedGemmInputs {
  GroupedGemmCase shape;
  int64_t parts, total_rows;
  std::vector<int32_t> slot_offset{0};
  std::vector<float> x, weight, bias;

  explicit GroupedGemmInputs(const GroupedGemmCase& c, uint32_t seed = 1)
      : shape(c), parts(c.fusion == Fusion::swiglu ? 2 : 1) {
    for (const int rows : c.rows) slot_offset.push_back(slot_offset.back() + rows);
    total_rows = slot_offset.back();
    const auto groups = static_cast<int64_t>(c.rows.size());
    x = random_values(total_rows * c.k, seed);
    weight = random_values(groups * parts * c.n * c.k, seed + 1, 0.25f);
    bias = random_values(groups * parts * c.n, seed + 2);
    for (auto* values : {&x, &weight}) {
      for (float& value : *values) value = to_float(to_bf16(value));
    }
  }

  /// The same slots and weights, with one of the rows alone.
  GroupedGemmInputs only_row(int row) const {
    GroupedGemmInputs one = *this;
    for (size_t s = 0; s < shape.rows.size(); ++s) {
      const bool here = slot_offset[s] <= row && row < slot_offset[s + 1];
      one.shape.rows[s] = here ? 1 : 0;
      one.slot_offset[s + 1] = one.slot_offset[s] + one.shape.rows[s];
    }
    one.total_rows = 1;
    one.x.assign(x.begin() + row * shape.k, x.begin() + (row + 1) * shape.k);
    return one;
  }

  GroupedGemm::Problem problem(DType weight_type, RowLayout in, RowLayout out) const {
    return {.groups = static_cast<int>(shape.rows.size()),
            .n = shape.n,
            .k = shape.k,
            .max_rows = total_rows,
            .weight = weight_type,
            .fusion = shape.fusion,
            .in = in,
            .out = out,
            .bias = shape.bias};
  }
};

/// Byte of an element of tiles_bf16, written apart from the kernels: see RowLayout.
inline int64_t tile_byte(int64_t block, int64_t row, int64_t column, int64_t width) {
  const int64_t padded = (width + 31) / 32 * 32;
  return block * padded * 64 + column / 32 * 2048 + row / 16 * 1024 + row % 16 * 64 +
         column % 32 * 2;
}

/// Calls visit(row, block, row within the block) for all rows of all slots.
template <class Visit>
void for_each_row(const std::vector<int32_t>& slot_offset, Visit&& visit) {
  int64_t first_block = 0;
  for (size_t s = 0; s + 1 < slot_offset.size(); ++s) {
    const int64_t rows = slot_offset[s + 1] - slot_offset[s];
    for (int64_t r = 0; r < rows; ++r) visit(slot_offset[s] + r, first_block + r / 32, r % 32);
    first_block += (rows + 31) / 32;
  }
}

/// Rows in a layout, with NaN wherever the layout promises nothing.
inline Storage poisoned_rows(RowLayout layout, const GroupedGemmInputs& in, int64_t width,
                             const std::vector<float>* values) {
  constexpr int64_t kGuard = 256;
  const int64_t bytes =
      row_layout_bytes(layout, in.total_rows, width, std::ssize(in.shape.rows)) + kGuard;
  Storage storage = *Storage::allocate(bytes);
  std::memset(storage.data(), 0xFF, static_cast<size_t>(bytes));  // NaN as f32 and as bf16
  if (values == nullptr) return storage;
  if (layout == RowLayout::rows_f32) {
    std::copy(values->begin(), values->end(), reinterpret_cast<float*>(storage.data()));
    return storage;
  }
  for_each_row(in.slot_offset, [&](int64_t row, int64_t block, int64_t i) {
    for (int64_t c = 0; c < (width + 31) / 32 * 32; ++c) {
      const float value = c < width ? (*values)[static_cast<size_t>(row * width + c)] : 0.0f;
      const Bf16 bits = to_bf16(value);
      std::memcpy(storage.data() + tile_byte(block, i, c, width), &bits, sizeof bits);
    }
  });
  return storage;
}

/// The result [R, n] as f32. Columns of padding must be zero and the guard untouched; returns false
/// otherwise.
inline bool read_rows(RowLayout layout, const GroupedGemmInputs& in, const Storage& y,
                      std::vector<float>& values) {
  const int64_t n = in.shape.n;
  values.assign(static_cast<size_t>(in.total_rows * n), std::numeric_limits<float>::quiet_NaN());
  bool clean = true;
  int64_t used = in.total_rows * n * 4;
  if (layout == RowLayout::rows_f32) {
    std::copy_n(reinterpret_cast<const float*>(y.data()), values.size(), values.begin());
  } else {
    int64_t blocks = 0;
    for (const int rows : in.shape.rows) blocks += tile_blocks(rows);
    used = blocks * ((n + 31) / 32 * 32) * 64;
    for_each_row(in.slot_offset, [&](int64_t row, int64_t block, int64_t i) {
      for (int64_t c = 0; c < (n + 31) / 32 * 32; ++c) {
        Bf16 bits;
        std::memcpy(&bits, y.data() + tile_byte(block, i, c, n), sizeof bits);
        if (c < n) {
          values[static_cast<size_t>(row * n + c)] = to_float(bits);
        } else {
          clean = clean && to_float(bits) == 0;
        }
      }
    });
  }
  for (int64_t i = used; i < y.size(); ++i) clean = clean && y.data()[i] == std::byte{0xFF};
  return clean;
}

struct GroupedGemmResult {
  std::vector<float> y;  ///< [R, n]
  bool clean = false;    ///< padding is zero and nothing was written behind the end
};

/// Packs, runs and unpacks one case on one entry.
inline GroupedGemmResult run_grouped_gemm(const Kernel<GroupedGemm>& kernel,
                                          const GroupedGemm::Problem& problem,
                                          const GroupedGemmInputs& in, Pool& pool,
                                          PhaseSplit* split = nullptr) {
  const int64_t slot_bytes = kernel.packing->slot_bytes(problem);
  const Storage weight = *Storage::allocate(slot_bytes * problem.groups + 64);
  const int64_t matrix = problem.n * problem.k;
  for (int s = 0; s < problem.groups; ++s) {
    const float* slot = in.weight.data() + s * in.parts * matrix;
    const auto gate = TensorView::of(slot, {problem.n, problem.k});
    const auto up = TensorView::of(slot + matrix, {problem.n, problem.k});
    kernel.packing->pack(problem, gate, in.parts == 2 ? &up : nullptr,
                         weight.data() + s * slot_bytes);
  }
  const Storage x = poisoned_rows(problem.in, in, problem.k, &in.x);
  const Storage y = poisoned_rows(problem.out, in, problem.n, nullptr);
  const int64_t workspace_bytes = kernel.workspace(problem, pool.num_threads());
  const Storage workspace = *Storage::allocate(workspace_bytes + 64);
  const Stream stream({}, pool);
  kernel.run(problem,
             {.x = x.data(),
              .slot_offset = in.slot_offset.data(),
              .weight = weight.data(),
              .bias = problem.bias ? in.bias.data() : nullptr,
              .y = y.data(),
              .split = split},
             {workspace.data(), static_cast<size_t>(workspace_bytes)}, stream);
  GroupedGemmResult result;
  result.clean = read_rows(problem.out, in, y, result.y);
  return result;
}

}  // namespace switchyard::cases
