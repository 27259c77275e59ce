// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"

#include "device/cpu_features.h"
#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/grouped_gemm_pack.h"
#include "kernels/cpu/grouped_gemm_work.h"
#include "kernels/ops/row_major.h"

namespace switchyard::cpu {
namespace {

// What the code regions of the files may use, and so what their entries need.
constexpr Needs kNeedsAvx2{kAvx2 | kFma | kF16c};
constexpr Needs kNeedsAvx512{kNeedsAvx2.cpu_features | kAvx512f | kAvx512bw | kAvx512vl |
                             kAvx512dq};
constexpr Needs kNeedsAmx{kNeedsAvx512.cpu_features | kAvx512bf16 | kAmxTile | kAmxBf16};

Verdict accept_f32_rows(const GroupedGemm::Problem& problem) noexcept {
  if (problem.in != RowLayout::rows_f32) return {"reads rows_f32 only"};
  if (problem.out != RowLayout::rows_f32) return {"writes rows_f32 only"};
  return {};
}
template <DType weight>
Verdict accept_panels(const GroupedGemm::Problem& problem) noexcept {
  static_assert(weight == DType::f32 || weight == DType::bf16);
  if (problem.weight != weight) {
    return {weight == DType::bf16 ? "weights are not bf16" : "weights are not f32"};
  }
  return accept_f32_rows(problem);
}
Verdict accept_tiles(const GroupedGemm::Problem& problem) noexcept {
  if (problem.weight != DType::bf16) return {"weights are not bf16"};
  if (problem.in != RowLayout::tiles_bf16) return {"reads tiles_bf16 only"};
  return {};
}

int64_t work_memory(const GroupedGemm::Problem& problem, int) noexcept {
  return Work::memory_bytes(problem.groups);
}
int64_t tile_memory(const GroupedGemm::Problem& problem, int num_threads) noexcept {
  constexpr auto kThreadBytes = kMaxTileSums * kBlockSums * static_cast<int64_t>(sizeof(float));
  return Work::memory_bytes(problem.groups) + num_threads * kThreadBytes;
}

template <class Op>
Verdict accept_all(const typename Op::Problem&) noexcept {
  return {};
}
template <class Op>
int64_t no_memory(const typename Op::Problem&, int) noexcept {
  return 0;
}

const Kernel<GroupedGemm> kGroupedGemm[] = {
    {"grouped_gemm.cpu.amx_bf16", kNeedsAmx, Role::candidate, accept_tiles, tile_memory,
     amx::grouped_gemm_bf16, &kPanel32Bf16},
    {"grouped_gemm.cpu.avx512_bf16", kNeedsAvx512, Role::candidate, accept_panels<DType::bf16>,
     work_memory, avx512::grouped_gemm_bf16, &kPanel32Bf16},
    {"grouped_gemm.cpu.avx512_f32", kNeedsAvx512, Role::candidate, accept_panels<DType::f32>,
     work_memory, avx512::grouped_gemm_f32, &kPanel32F32},
    {"grouped_gemm.cpu.avx2_bf16", kNeedsAvx2, Role::candidate, accept_panels<DType::bf16>,
     work_memory, avx2::grouped_gemm_bf16, &kPanel32Bf16},
    {"grouped_gemm.cpu.avx2_f32", kNeedsAvx2, Role::candidate, accept_panels<DType::f32>,
     work_memory, avx2::grouped_gemm_f32, &kPanel32F32},
    {"grouped_gemm.cpu.naive",
     {},
     Role::baseline,
     accept_f32_rows,
     no_memory<GroupedGemm>,
     grouped_gemm_naive,
     &kRowMajorPacking},
};

// The two entries of an operation without weights.
template <class Op>
struct Pair {
  Kernel<Op> entries[2];
  constexpr Pair(std::string_view avx512_name, Run<Op>* avx512_run, std::string_view avx2_name,
                 Run<Op>* avx2_run)
      : entries{
            {avx512_name, kNeedsAvx512, Role::candidate, accept_all<Op>, no_memory<Op>, avx512_run},
            {avx2_name, kNeedsAvx2, Role::candidate, accept_all<Op>, no_memory<Op>, avx2_run}} {}
};
Verdict accept_attention(const Attention::Problem& problem) noexcept {
  if (problem.block_tokens % 8 == 0) return {};
  return {"block_tokens is not a multiple of 8"};
}
Verdict accept_tile_attention(const Attention::Problem& problem) noexcept {
  if (problem.deterministic) return {"a token's bits depend on how many tokens its step has"};
  if (problem.cache != DType::bf16) return {"the cache is not bf16"};
  if (problem.head_dim % 32 != 0) return {"head_dim is not a multiple of 32"};
  if (problem.block_tokens % 16 != 0) return {"block_tokens is not a multiple of 16"};
  if (problem.heads / problem.kv_heads > kMaxQueryRows) {
    return {"more queries share a key than a tile has rows"};
  }
  return {};
}
const Kernel<Attention> kAttention[] = {
    {"attention.cpu.amx_bf16", kNeedsAmx, Role::candidate, accept_tile_attention, attention_memory,
     amx::attention_bf16},
    {"attention.cpu.avx512", kNeedsAvx512, Role::candidate, accept_attention, attention_memory,
     avx512::attention},
    {"attention.cpu.avx2", kNeedsAvx2, Role::candidate, accept_attention, attention_memory,
     avx2::attention},
};
constexpr Pair<RmsNorm> kRmsNorm("rms_norm.cpu.avx512", avx512::rms_norm, "rms_norm.cpu.avx2",
                                 avx2::rms_norm);
constexpr Pair<PrepareQkv> kPrepareQkv("prepare_qkv.cpu.avx512", avx512::prepare_qkv,
                                       "prepare_qkv.cpu.avx2", avx2::prepare_qkv);
constexpr Pair<Gather> kGather("gather.cpu.avx512", avx512::gather, "gather.cpu.avx2",
                               avx2::gather);
constexpr Pair<Combine> kCombine("combine.cpu.avx512", avx512::combine, "combine.cpu.avx2",
                                 avx2::combine);

Verdict accept_route(const Route::Problem& problem) noexcept {
  const RouterSpec& spec = problem.spec;
  if (spec.selector != "token_choice") return {"token_choice only"};
  if (spec.top_groups < spec.num_groups || spec.max_devices > 0) {
    return {"no limits to groups or devices"};
  }
  if (spec.group_score == GroupScore::sum_top_2 && spec.num_groups > 1 && !spec.selection_bias) {
    return {"picks by logits or by biased scores only"};
  }
  return {};
}
const Kernel<Route> kRoute[] = {
    {"route.cpu.avx512", kNeedsAvx512, Role::candidate, accept_route, no_memory<Route>,
     avx512::route},
    {"route.cpu.avx2", kNeedsAvx2, Role::candidate, accept_route, no_memory<Route>, avx2::route},
};

}  // namespace

template <>
std::span<const Kernel<GroupedGemm>> table() {
  return kGroupedGemm;
}
template <>
std::span<const Kernel<Attention>> table() {
  return kAttention;
}
template <>
std::span<const Kernel<RmsNorm>> table() {
  return kRmsNorm.entries;
}
template <>
std::span<const Kernel<PrepareQkv>> table() {
  return kPrepareQkv.entries;
}
template <>
std::span<const Kernel<Gather>> table() {
  return kGather.entries;
}
template <>
std::span<const Kernel<Combine>> table() {
  return kCombine.entries;
}
template <>
std::span<const Kernel<Route>> table() {
  return kRoute;
}

}  // namespace switchyard::cpu
