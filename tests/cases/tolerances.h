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
    {"grouped_gemm", DType::f32, 1.5e-6, 2e-5,
     "f32 sums of up to a few thousand terms against f64: rounding grows as the square root of the "
     "number of terms, 6e-8 x 64 for 4128 at worst; a single element sees more where terms cancel"},
    {"grouped_gemm", DType::bf16, 5e-4, 5e-2,
     "both results are rounded to bf16 (unit 2^-8 of the element) and differ only where the f32 "
     "sum "
     "falls on the other side of a border between two values, which few elements do; one such "
     "element may be several times the root mean square"},
    {"attention", DType::f32, 2e-6, 2e-5,
     "scores are f32 sums of up to 128 terms near 1 (3e-7), e^x is within 3e-7, and weights and "
     "sums add their rounding; the same for f32 and bf16 caches, which hold the same values here"},
    {"attention_tiles", DType::f32, 4e-3, 4e-2,
     "weights of the softmax are rounded to bf16 (up to 2^-9 of each) before they meet the values, "
     "as the reference implementations of models do in bf16; the queries keep 16 bits"},
    {"attention_large_scores", DType::f32, 5e-5, 5e-4,
     "scores of some hundreds round by 2e-5 each, and e^x turns that into a relative error"},
    {"rms_norm", DType::f32, 3e-7, 2e-6,
     "a sum of squares has no cancellation, so its rounding stays near 1e-7; then a root, a "
     "quotient and two products of one rounding each"},
    {"prepare_qkv", DType::f32, 4e-7, 2e-6, "as rms_norm, and a rotation of three roundings"},
    {"prepare_qkv", DType::bf16, 2e-3, 3e-2,
     "results are rounded to bf16 (unit 2^-8 of the element) and differ only where the f32 value "
     "falls on the other side of a border, which one element in a few hundred does"},
    {"moe_ffn", DType::bf16, 4e-3, 5e-2,
     "hidden values and expert rows are rounded to bf16 once each (unit 2^-8, so 0.0012 to 0.0017 "
     "relative to the whole), against f64 without any rounding"},
    {"moe_ffn_32_picks", DType::bf16, 4e-3, 1.2e-1,
     "as moe_ffn; of 32 picks one may weigh nearly 1 beside a root mean square of evenly weighted "
     "ones, and "
     "its rounding stands out alone: 0.09 where f32 arithmetic rounds the same values to bf16 "
     "(scripts/golden/moe_bf16_rounding.py)"},
    {"combine", DType::f32, 3e-7, 3e-6,
     "f32 sums of at most ten terms; a single element sees more where terms cancel"},
};

inline const Tolerance& tolerance(std::string_view op, DType dtype) {
  for (const Tolerance& entry : kTolerances) {
    if (entry.op == op && entry.dtype == dtype) return entry;
  }
  SWITCHYARD_UNREACHABLE("no tolerance for {} {}", op, dtype_name(dtype));
}

}  // namespace switchyard::cases
