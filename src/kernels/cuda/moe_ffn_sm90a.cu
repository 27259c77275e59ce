// SPDX-License-Identifier: Apache-2.0
// The experts of a MoE layer on Hopper, for any number of rows: both grouped products in one persistent launch, wgmma with
// the weights as the M operand and an expert's tokens, rounded up to 8, as N.
//
//   x [T, D] -> hidden [R, F] bf16 (in panels, see below) -> rows [R, D] bf16 -> combine (a launch of its own)
//   block     one per multiprocessor, 384 threads: a warp claims items and streams weights, two warps gather tokens, one sends results, two
//             warpgroups multiply; see moe_ffn_sm90a_plan.cuh, _load.cuh and _math.cuh
//   ring      stages of [128 or 256 rows][64] weights and [tokens][64] of x or hidden, both with the 128-byte swizzle; where experts
//             with many tokens are among such with few, tokens have a ring of their own
//   hidden    panels of 64 columns, [R'][64] swizzled, an expert's rows from a multiple of 8 on: what pass 1 makes of an
//             item is one bulk store, and a stage of tokens in pass 2 is one bulk copy
//   between   counters of finished panels, for each run of experts: pass 2 starts while pass 1 ends, and the weights of
//             pass 2 are on their way before its tokens are; the same for first parts of pass 2, whose sums go through memory in f32
//   ahead     first weights are asked for while gate and routing run (moe_ffn_sm90a_ahead.cuh)
//   kept      hidden rows stay in the L2 for pass 2 where they fit, and combine lets go of them and of rows: neither need ever reach memory
//   cost      the hit experts' weights once, plus L2 traffic; no padded row beyond 8; nothing is read by the host
// The order of K is the same in every tile configuration and no value is shared between tokens, so a token's bits depend on
// nothing but the token.
// Sources: NVIDIA's PTX ISA 9.0 (wgmma, mbarrier); Gale et al. 2022, arXiv 2211.15841 (dropless MoE by grouped products).
#include <algorithm>

#include "kernels/cuda/gate_entries.h"
#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"
#include "kernels/cuda/moe_small_claim.cuh"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda {
namespace {

using sm90a::MoeFfnParams;

static_assert(sm90a::kFirstSync + sm90a::kSyncWords <= small_layer::kTaggedWord,
              "the words that the single launch tags lie behind");

/// A tile and the mean rows of an expert up to which it is the right one.
struct Choice {
  const sm90a::TileKernel* tile;
  int64_t most_mean_rows;
};

constexpr int64_t kAnyRows = int64_t{1} << 40;

/// Best first; one that does not divide the widths is passed over. bench/results/notes-gpu-moe.md has what each measured.
constexpr Choice kChoices[] = {
    {&sm90a::kTile128x64, 20},        {&sm90a::kTile256x128, 100},
    {&sm90a::kTile256x192Apart, 200}, {&sm90a::kTile256x192, kAnyRows},
    {&sm90a::kTile128x128, kAnyRows},
};

/// `ffn_width` padded.
const sm90a::TileKernel& choose(int64_t rows, int experts, int64_t width,
                                int64_t ffn_width) noexcept {
  for (const Choice& each : kChoices) {
    const int weight_rows = each.tile->weight_rows;
    const bool divides = width % weight_rows == 0 && 2 * ffn_width % weight_rows == 0;
    if (divides && rows <= each.most_mean_rows * experts) return *each.tile;
  }
  return sm90a::kTile128x128;
}

int64_t hidden_rows(const MoeFfn::Problem& problem) noexcept {
  return (problem.max_tokens * problem.rule.top_k + 7) / 8 * 8 + 8 * problem.rule.experts;
}

int64_t hidden_bytes(const MoeFfn::Problem& problem) noexcept {
  return hidden_rows(problem) * MoePack::padded(problem.ffn_width) * 2;
}

/// Rows whose sums may go from part to part of an item: with more there are items enough, and a short K has no parts.
int64_t carry_rows(const MoeFfn::Problem& problem) noexcept {
  constexpr int64_t kMostRows = 2304;
  constexpr int64_t kLeastWidth = sm90a::kLeastSplitSteps * sm90a::kStepInputs;
  return problem.ffn_width >= kLeastWidth ? std::min(hidden_rows(problem), kMostRows) : 0;
}

/// What is left to combine stays in the L2 up to so many bytes, and where rows are few in the mean memory gains nothing by it.
constexpr int64_t kMostKeptHidden = int64_t{16} << 20, kMostKeptRows = int64_t{40} << 20;
constexpr int64_t kLeastKeptMeanRows = 24;

/// Of the panels of a call with so many rows.
int64_t used_hidden_rows(const MoeFfn::Problem& problem, int64_t rows) noexcept {
  return std::min((rows + 7) / 8 * 8 + 8 * problem.rule.experts, hidden_rows(problem));
}
bool keeps_rows(const MoeFfn::Problem& problem, int64_t rows) noexcept {
  return rows >= kLeastKeptMeanRows * problem.rule.experts &&
         rows * problem.width * 2 <= kMostKeptRows;
}
bool keeps_hidden(const MoeFfn::Problem& problem, int64_t rows) noexcept {
  const int64_t bytes = used_hidden_rows(problem, rows) * MoePack::padded(problem.ffn_width) * 2;
  return keeps_rows(problem, rows) && bytes <= kMostKeptHidden;
}

int64_t rows_of(const MoeFfn::Problem& problem, const MoeFfn::Args& args) noexcept {
  return args.rows > 0 ? args.rows : args.tokens * problem.rule.top_k;
}

sm90a::Ahead ahead_of(const MoeFfn::Problem& problem, const MoeFfn::Args& args) noexcept {
  if (rows_of(problem, args) < 2 * problem.rule.experts) return sm90a::Ahead::none;
  // A gate's launch that routes too is in front (but for shared experts, of which no model was measured). Measured with 104 blocks for 132
  // multiprocessors, and with 16 and 56, which lose by shares that are taken.
  const bool full = args.routed && norm_gate_blocks(args.tokens) * 3 >= num_multiprocessors() * 2;
  return full ? sm90a::Ahead::taken : sm90a::Ahead::own;
}

ExpertRows expert_rows(const MoeFfn::Problem& problem, const MoeFfnParams& params,
                       int64_t rows) noexcept {
  ExpertRows made{.rows = params.rows, .let_go = keeps_rows(problem, rows)};
  if (!params.keeps_hidden) return made;
  made.hidden = params.hidden;
  made.panels = static_cast<unsigned>(params.ffn_width / sm90a::kStepInputs);
  made.panel_bytes = int64_t{params.hidden_rows} * sm90a::kStepBytes;
  made.used_bytes = used_hidden_rows(problem, rows) * sm90a::kStepBytes;
  return made;
}

const char* refusal(const MoeFfn::Problem& problem) noexcept {
  if (problem.weight != DType::bf16) return "needs bf16 weights";
  if (problem.width < 128 || problem.width > 16384 || problem.width % 128 != 0) {
    return "needs a width that is a multiple of 128, of at most 16384";
  }
  if (problem.ffn_width < 1) return "needs a hidden width of at least 1";
  if (problem.rule.experts > sm90a::kMaxExperts) return "needs at most 384 experts";
  const int64_t rows = problem.max_tokens * problem.rule.top_k;
  if (rows > int64_t{1} << 21) return "needs at most 2097152 rows";
  const int64_t read = problem.weight_on_input ? rows : problem.max_tokens;
  if (read * problem.width > int64_t{1} << 34) return "needs at most 32 GiB of tokens";
  return MoeRoute::refusal({problem.rule, problem.max_tokens});
}

int64_t workspace(const MoeFfn::Problem& problem) noexcept {
  return hidden_bytes(problem) + result_bytes(problem) + carry_rows(problem) * problem.width * 4;
}

void run(const MoeFfn::Problem& problem, const MoeFfn::Args& args, void* stream) noexcept {
  if (args.tokens == 0) return;
  const int64_t ffn = MoePack::padded(problem.ffn_width);
  MoeFfnParams params{};
  params.x = static_cast<const bf16*>(args.x);
  params.w13 = static_cast<const bf16*>(args.w13);
  params.w2 = static_cast<const bf16*>(args.w2);
  params.hidden = static_cast<bf16*>(args.workspace);
  auto* const results = static_cast<char*>(args.workspace) + hidden_bytes(problem);
  params.rows = reinterpret_cast<bf16*>(results);
  params.carry = reinterpret_cast<float*>(results + result_bytes(problem));
  params.carry_rows = static_cast<int>(carry_rows(problem));
  params.slot_offset = args.routing.slot_offset;
  params.row_token = args.routing.row_token;
  params.sync = reinterpret_cast<int32_t*>(args.sync) + sm90a::kFirstSync;
  params.sides = args.sides;
  params.experts = problem.rule.experts;
  params.width = static_cast<int>(problem.width);
  params.ffn_width = static_cast<int>(ffn);
  params.passes = args.stop == MoeFfn::Stop::after_up ? 1 : 2;
  params.activation = problem.activation;
  params.curve = glu_curve(problem.activation);
  params.up_bias = {args.up_bias, static_cast<int>(problem.ffn_width)};
  params.down_bias = {args.down_bias, static_cast<int>(problem.width)};
  params.biased = args.up_bias != nullptr || args.down_bias != nullptr;
  const int64_t rows = rows_of(problem, args);
  // As close as this call's rows allow: panels apart by the rows of the largest call are on many more pages.
  params.hidden_rows = static_cast<int>(used_hidden_rows(problem, rows));
  params.ahead = ahead_of(problem, args);
  // Without combine nobody would let them go.
  params.keeps_hidden = args.stop == MoeFfn::Stop::never && keeps_hidden(problem, rows);
  choose(rows, problem.rule.experts, problem.width, ffn)
      .launch(params, static_cast<cudaStream_t>(stream));
  if (args.stop == MoeFfn::Stop::never) {
    launch_combine(problem, args, expert_rows(problem, params, rows), stream);
  }
}

}  // namespace

FirstWeights first_weights(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem,
                           const MoeFfn::Args& args) noexcept {
  if (kernel.name != kMoeFfnSm90a.name || ahead_of(problem, args) != sm90a::Ahead::taken) return {};
  return {args.w13, problem.rule.experts * MoePack::w13_bytes(problem.width, problem.ffn_width)};
}

const MoeFfn::Kernel kMoeFfnSm90a = {
    "moe_ffn.cuda.sm90a", 90, 90, false, refusal, suits_any, workspace, run};

}  // namespace switchyard::cuda
