// SPDX-License-Identifier: Apache-2.0
// Kernels for CPUs with AVX2: the algorithms stand in the .inl.h files, the instructions in this region.
#include "kernels/cpu/shell.h"

SWITCHYARD_ISA_BEGIN("avx2,fma,f16c")
namespace switchyard::cpu::avx2 {
namespace {

// The order matters: each text uses the one before it.
// clang-format off
#include "kernels/cpu/lanes_avx2.inl.h"
#include "kernels/cpu/grouped_gemm.inl.h"
#include "kernels/cpu/permute.inl.h"
#include "kernels/cpu/route.inl.h"
#include "kernels/cpu/norm_rope_act.inl.h"
#include "kernels/cpu/attention.inl.h"
// clang-format on

}  // namespace

#include "kernels/cpu/entries.inl.h"

void grouped_gemm_f32(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
                      std::span<std::byte> workspace, const Stream& stream) noexcept {
  run_grouped_gemm<F32Panel>(problem, args, workspace, stream);
}
void grouped_gemm_bf16(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
                       std::span<std::byte> workspace, const Stream& stream) noexcept {
  run_grouped_gemm<Bf16Panel>(problem, args, workspace, stream);
}

}  // namespace switchyard::cpu::avx2
SWITCHYARD_ISA_END
