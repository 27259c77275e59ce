// SPDX-License-Identifier: Apache-2.0
// What a MoE layer gives, in f64 and as plainly as it can be said, on the device because that is quick.
#pragma once
#include <cstdint>

#include "kernels/ops/moe_ffn.h"

namespace switchyard::testing {

/// Unpacked weights, bf16, row-major: gate and up [E, F, D], down [E, D, F].
struct PlainExperts {
  const uint16_t *gate = nullptr, *up = nullptr, *down = nullptr;
};

/// Pseudo-random values near a normal distribution, as bf16.
void fill_normals(uint16_t* to, int64_t count, double deviation, unsigned seed);

/// y [T, D] f64 holds the residual stream before, and after; hidden is scratch [T, K, F] f64.
void reference_moe_ffn(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                       const PlainExperts& experts, double* hidden, double* y);

}  // namespace switchyard::testing
