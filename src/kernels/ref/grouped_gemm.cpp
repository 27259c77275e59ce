// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM, the meaning: see ops/grouped_gemm.h. Weights are row-major (packing "row_major"),
// every sum is f64 in ascending k, the activation is f64, and the result is rounded once.
#include <cmath>

#include "kernels/ops/row_major.h"
#include "kernels/ops/weight_source.h"
#include "kernels/ref/entries.h"

namespace switchyard::ref {
namespace {

// Rows of one slot in either layout: where input or output c of row i lies.
class Rows {
 public:
  // first_row and first_block are those of the slot.
  Rows(RowLayout layout, const void* data, int64_t width, int64_t first_row, int64_t first_block)
      : layout_(layout),
        width_(width),
        data_(const_cast<std::byte*>(static_cast<const std::byte*>(data))) {
    data_ += layout == RowLayout::rows_f32 ? first_row * width * 4
                                           : first_block * padded() * kTileRows * 2;
  }
  double get(int64_t row, int64_t column) const {
    if (layout_ == RowLayout::rows_f32) {
      return static_cast<double>(reinterpret_cast<const float*>(data_)[row * width_ + column]);
    }
    return static_cast<double>(to_float(*tile_element(row, column)));
  }
  void set(int64_t row, int64_t column, double value) const {
    const auto rounded = static_cast<float>(value);
    if (layout_ == RowLayout::rows_f32) {
      reinterpret_cast<float*>(data_)[row * width_ + column] = rounded;
    } else {
      *tile_element(row, column) = to_bf16(rounded);
    }
  }
  // Columns that a row has in memory; those beyond its width are zero.
  int64_t padded() const {
    return layout_ == RowLayout::rows_f32 ? width_ : (width_ + 31) / 32 * 32;
  }

 private:
  Bf16* tile_element(int64_t row, int64_t c) const {
    const int64_t block = row / kTileRows, i = row % kTileRows;
    return reinterpret_cast<Bf16*>(data_ + block * padded() * 64 + c / 32 * 2048 + i / 16 * 1024 +
                                   i % 16 * 64 + c % 32 * 2);
  }

  RowLayout layout_;
  int64_t width_;
  std::byte* data_;
};

template <class Weight>
double dot(const Rows& x, int64_t row, const Weight* weight, int64_t k) {
  double sum = 0;
  for (int64_t c = 0; c < k; ++c) sum += x.get(row, c) * static_cast<double>(to_float(weight[c]));
  return sum;
}

// One row of one slot.
template <class Weight>
void run_row(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args, int slot,
             const Rows& x, const Rows& y, int64_t row) {
  const int64_t parts = problem.fusion == Fusion::swiglu ? 2 : 1;
  const auto* weight =
      reinterpret_cast<const Weight*>(args.weight + slot * kRowMajorPacking.slot_bytes(problem));
  // Output n of gate (part 0) or up (part 1), before the activation.
  const auto output = [&](int64_t part, int64_t n) {
    const double sum = dot(x, row, weight + (part * problem.n + n) * problem.k, problem.k);
    if (!problem.bias) return sum;
    return sum + static_cast<double>(args.bias[(slot * parts + part) * problem.n + n]);
  };
  for (int64_t n = 0; n < problem.n; ++n) {
    double value = output(0, n);
    if (problem.fusion == Fusion::swiglu) value = value / (1 + std::exp(-value)) * output(1, n);
    y.set(row, n, value);
  }
  for (int64_t n = problem.n; n < y.padded(); ++n) y.set(row, n, 0);
}

}  // namespace

void grouped_gemm(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
                  std::span<std::byte>, const Stream& stream) noexcept {
  int64_t first_block = 0;
  for (int slot = 0; slot < problem.groups; ++slot) {
    const int64_t first = args.slot_offset[slot], rows = args.slot_offset[slot + 1] - first;
    const Rows x(problem.in, args.x, problem.k, first, first_block);
    const Rows y(problem.out, args.y, problem.n, first, first_block);
    stream.pool().for_each(rows, [&](int64_t row, int) {
      if (problem.weight == DType::bf16) {
        run_row<Bf16>(problem, args, slot, x, y, row);
      } else {
        run_row<float>(problem, args, slot, x, y, row);
      }
    });
    first_block += tile_blocks(rows);
  }
}

}  // namespace switchyard::ref
