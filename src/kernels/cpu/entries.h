// SPDX-License-Identifier: Apache-2.0
// The run functions of the CPU kernels, by instruction set. avx2.cpp, avx512.cpp and amx.cpp define
// them inside their target regions; table.cpp lists them.
#pragma once
#include <cstddef>
#include <span>

#include "kernels/op.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/grouped_gemm.h"
#include "kernels/ops/norm_rope_act.h"
#include "kernels/ops/permute.h"
#include "kernels/ops/route.h"

namespace switchyard::cpu {

/// The type of a kernel's run function.
template <class Op>
using Run = void(const typename Op::Problem&, const typename Op::Args&, std::span<std::byte>,
                 const Stream&) noexcept;

Run<GroupedGemm> grouped_gemm_naive;

namespace avx2 {
Run<GroupedGemm> grouped_gemm_f32;
Run<GroupedGemm> grouped_gemm_bf16;
Run<Attention> attention;
Run<RmsNorm> rms_norm;
Run<PrepareQkv> prepare_qkv;
Run<Gather> gather;
Run<Combine> combine;
Run<Route> route;
}  // namespace avx2

namespace avx512 {
Run<GroupedGemm> grouped_gemm_f32;
Run<GroupedGemm> grouped_gemm_bf16;
Run<Attention> attention;
Run<RmsNorm> rms_norm;
Run<PrepareQkv> prepare_qkv;
Run<Gather> gather;
Run<Combine> combine;
Run<Route> route;
}  // namespace avx512

namespace amx {
Run<GroupedGemm> grouped_gemm_bf16;
Run<Attention> attention_bf16;
}  // namespace amx

}  // namespace switchyard::cpu
