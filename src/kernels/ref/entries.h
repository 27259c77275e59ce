// SPDX-License-Identifier: Apache-2.0
// The reference of every operation: plain loops that define what the operation means. None refuses
// a problem.
#pragma once
#include <cstddef>
#include <span>

#include "kernels/op.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/grouped_gemm.h"
#include "kernels/ops/norm_rope_act.h"
#include "kernels/ops/permute.h"
#include "kernels/ops/route.h"

namespace switchyard::ref {

/// The type of a kernel's run function.
template <class Op>
using Run = void(const typename Op::Problem&, const typename Op::Args&, std::span<std::byte>,
                 const Stream&) noexcept;

Run<GroupedGemm> grouped_gemm;
Run<Attention> attention;
Run<RmsNorm> rms_norm;
Run<PrepareQkv> prepare_qkv;
Run<Gather> gather;
Run<Combine> combine;
Run<Route> route;

}  // namespace switchyard::ref
