// SPDX-License-Identifier: Apache-2.0
// Weights for a speed test: every matrix is a window into one small piece of noise, its rows shifted
// against each other, so that filling gigabytes costs no more than packing them.
#pragma once
#include <cstdint>
#include <vector>

#include "cli/bench_moe_shape.h"
#include "tensor/float_types.h"
#include "tensor/view.h"

namespace switchyard::cli {

/// Numbers of the given standard deviation, nearly normal.
std::vector<float> bench_noise(int64_t count, double deviation, uint64_t seed);

class BenchWeights {
 public:
  explicit BenchWeights(const MoeShape& shape);

  TensorView gate(int layer, int64_t slot) const;  ///< [F, D]
  TensorView up(int layer, int64_t slot) const;    ///< [F, D]
  TensorView down(int layer, int64_t slot) const;  ///< [D, F]
  TensorView router() const;                       ///< [E, D]

 private:
  TensorView window(uint64_t which, int64_t rows, int64_t columns) const;

  MoeShape shape_;
  std::vector<Bf16> noise_;
};

}  // namespace switchyard::cli
