// SPDX-License-Identifier: Apache-2.0
// How far a fast kernel may be from the reference, by operation and by the type that limits its
// precision. Every row says why. A tolerance is raised only with a reason that can stand here.
#pragma once
#include <string_view>

#include "base/check.h"
#include "tensor/dtype.h"

namespace switchyard::cases {

struct Tolerance {
  std::string_view op;
  DType dtype;
  double relative_error;  ///< of the whole result: sqrt(sum (a-b)^2 / sum b^2)
  double max_error;       ///< of one element, in units of the result's root mean square
  std::string_view reason;
};

inline constexpr Tolerance kTolerances[] = {
    {"grouped_gemm", DType::f32, 2e-6, 3e-5,
     "f32 sums of up to a few thousand terms against f64: rounding grows as the square root of the "
     "number of terms, "
     "6e-8 x 45 for 2048; a single element may see a few times that, more where the terms cancel "
     "or silu is steep"},
    {"grouped_gemm", DType::bf16, 2.5e-3, 3e-2,
     "the result is rounded to bf16, whose unit is 2^-8: an error of up to 2^-9 of each element, "
     "1.7e-3 in the mean "
     "square, and one unit where an f32 sum falls on the other side of a border between two bf16 "
     "values"},
};

inline const Tolerance& tolerance(std::string_view op, DType dtype) {
  for (const Tolerance& entry : kTolerances) {
    if (entry.op == op && entry.dtype == dtype) return entry;
  }
  SWITCHYARD_UNREACHABLE("no tolerance for {} {}", op, dtype_name(dtype));
}

}  // namespace switchyard::cases
