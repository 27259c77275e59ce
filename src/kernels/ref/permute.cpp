// SPDX-License-Identifier: Apache-2.0
// What gather and combine mean: plain loops, sums in f64.
#include "kernels/ops/permute.h"

#include <cstring>

#include "kernels/ref/entries.h"
#include "tensor/float_types.h"

namespace switchyard::ref {
namespace {

double wide(float value) { return static_cast<double>(value); }

// Row `row` of block `block` in tiles_bf16 (see RowLayout), padded with zeros to 32 columns; all zeros without `from`.
void store_tile_row(const float* from, const float* weight, int64_t width, int64_t block,
                    int64_t row, std::byte* to) {
  const int64_t padded = (width + 31) / 32 * 32;
  std::byte* base = to + block * padded * 64 + row / 16 * 1024 + row % 16 * 64;
  for (int64_t c = 0; c < padded; ++c) {
    const float v = from != nullptr && c < width ? from[c] : 0.0f;
    const Bf16 value = to_bf16(weight != nullptr ? *weight * v : v);
    std::memcpy(base + c / 32 * 2048 + c % 32 * 2, &value, sizeof(value));
  }
}

void store_row(const float* from, const float* weight, int64_t width, float* to) {
  for (int64_t c = 0; c < width; ++c) {
    const float v = from != nullptr ? from[c] : 0.0f;
    to[c] = weight != nullptr ? *weight * v : v;
  }
}

}  // namespace

void gather(const Gather::Problem& problem, const Gather::Args& args, std::span<std::byte>,
            const Stream&) noexcept {
  const int64_t width = problem.width;
  int64_t block = 0;
  for (int s = 0; s < problem.groups; ++s) {
    const int64_t begin = args.slot_offset[s], end = args.slot_offset[s + 1];
    for (int64_t r = begin; r < end; ++r) {
      const int64_t token = args.row_token != nullptr ? args.row_token[r] : r;
      const float* from = token < 0 ? nullptr : args.x + token * width;
      const float* weight = args.row_weight != nullptr ? args.row_weight + r : nullptr;
      if (problem.out == RowLayout::rows_f32) {
        store_row(from, weight, width, static_cast<float*>(args.y) + r * width);
      } else {
        const int64_t i = r - begin;
        store_tile_row(from, weight, width, block + i / kTileRows, i % kTileRows,
                       static_cast<std::byte*>(args.y));
      }
    }
    block += tile_blocks(end - begin);
  }
}

void combine(const Combine::Problem& problem, const Combine::Args& args, std::span<std::byte>,
             const Stream&) noexcept {
  const int64_t width = problem.width;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t d = 0; d < width; ++d) {
      double sum = 0;
      for (int k = 0; k < problem.top_k; ++k) {
        const int64_t row = args.pick_row[t * problem.top_k + k];
        if (row < 0) continue;
        sum += wide(args.weight[t * problem.top_k + k]) * wide(args.rows[row * width + d]);
      }
      if (args.shared != nullptr) {
        const double weight = args.shared_weight != nullptr ? wide(args.shared_weight[t]) : 1.0;
        sum += weight * wide(args.shared[t * width + d]);
      }
      args.y[t * width + d] =
          static_cast<float>(wide(args.y[t * width + d]) + wide(args.scale) * sum);
    }
  }
}

}  // namespace switchyard::ref
