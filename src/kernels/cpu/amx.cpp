// SPDX-License-Identifier: Apache-2.0
// Kernels for CPUs with AMX tiles: the blocking stands in the .inl.h files, the instructions in
// this region.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/trace.h"
#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/grouped_gemm_pack.h"
#include "kernels/cpu/grouped_gemm_work.h"
#include "kernels/cpu/isa_region.h"
#include "tensor/float_types.h"

SWITCHYARD_ISA_BEGIN(
    "amx-tile,amx-bf16,avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
namespace switchyard::cpu::amx {
namespace {

// The order matters: each text uses the one before it.
// clang-format off
#include "kernels/cpu/lanes_avx512.inl.h"
#include "kernels/cpu/grouped_gemm_amx.inl.h"
#include "kernels/cpu/attention.inl.h"
#include "kernels/cpu/attention_amx.inl.h"
// clang-format on

}  // namespace

void grouped_gemm_bf16(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
                       std::span<std::byte> workspace, const Stream& stream) noexcept {
  const WorkRates rates{.bytes_per_ns = 10, .flops_per_ns = 1200};
  const Work::Limits limits{.max_panels = 256, .max_rows = kMaxTileBlocks * kTileRows};
  const int64_t work_bytes = Work::memory_bytes(problem.groups);
  const Work work(problem, args.slot_offset, rates, limits, stream.pool().num_threads(),
                  workspace.first(work_bytes));
  auto* sums = static_cast<float*>(static_cast<void*>(workspace.data() + work_bytes));
  work.for_each(stream.pool(), [&](const Task& task, int thread) {
    const TileScope tiles;
    TileTask(problem, args, task, sums + thread * kMaxTileSums * kBlockSums).run();
  });
}

void attention_bf16(const Attention::Problem& problem, const Attention::Args& args,
                    std::span<std::byte> workspace, const Stream& stream) noexcept {
  run_attention(problem, args, workspace, stream, kTileAttentionSteps);
}

}  // namespace switchyard::cpu::amx
SWITCHYARD_ISA_END
