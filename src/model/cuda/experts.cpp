// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/experts.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "base/environment.h"
#include "kernels/cuda/step.h"

namespace switchyard::model::cuda {
namespace {

// Integers of ExpertScratch::rows. What outlives a call stands first, where layers of every shape agree.
struct RowOffsets {
  int64_t sync, unusable, pick_row, row_token, slot_offset, hit, num_hit, end;
};
RowOffsets row_offsets(const MoeFfn::Problem& problem) {
  const auto room = [](int64_t count) { return (count + 63) / 64 * 64; };
  const int64_t picks = room(problem.max_tokens * problem.rule.top_k);
  const int64_t experts = room(problem.rule.experts + 1);
  RowOffsets at{};
  at.unusable = room(MoeFfn::kSyncWords);
  at.pick_row = at.unusable + room(1);
  at.row_token = at.pick_row + picks;
  at.slot_offset = at.row_token + picks;
  at.hit = at.slot_offset + experts;
  at.num_hit = at.hit + experts;
  at.end = at.num_hit + room(1);
  return at;
}

// What of a router the kernels do not do; empty when they do all of it. MoeRoute knows more than MoeFfn's entries ask it for.
std::string why_not(const RouterSpec& router) {
  if (router.selector != "token_choice") return fmt::format("the selector {}", router.selector);
  if (router.score != Score::softmax) return "a score other than softmax";
  if (router.selection_bias) return "a selection bias";
  if (router.noise != 0 || router.jitter != 0 || router.random_second) return "a random choice";
  if (router.weight_on_input) return "a weight on the expert's input";
  if (router.num_groups > 1) return "a limit of groups";
  if (router.max_devices > 0) return "a limit of devices";
  if (router.norm_order != 1) return "a norm of the weights other than their sum";
  if (router.renormalize_minimum != 0) return "a least divisor of the weights";
  if (router.scale == 0) return "a scale of 0";  // a first weight of 0 marks unusable rows
  if (router.capacity_factor != 0) return "a capacity (--capacity-factor)";
  return "";
}

RouteRule rule_of(const RouterSpec& router) {
  RouteRule rule;
  rule.experts = router.num_experts;
  rule.top_k = router.top_k;
  rule.weigh = router.weigh == Weigh::raw           ? RouteRule::Weigh::raw
               : router.weigh == Weigh::renormalize ? RouteRule::Weigh::renormalize
                                                    : RouteRule::Weigh::softmax_after_top_k;
  rule.epsilon = router.renormalize_epsilon;
  rule.scale = router.scale;
  return rule;
}

}  // namespace

Result<Experts> Experts::create(const RouterSpec& router, int64_t width, int64_t ffn_width,
                                DType dtype, int64_t max_tokens, int compute_capability) {
  if (const std::string reason = why_not(router); !reason.empty()) {
    return fail(Code::unsupported, "router: {} cannot run on a CUDA device yet: use --device cpu",
                reason);
  }
  Experts experts;
  experts.router_ = router;
  experts.dtype_ = dtype;
  experts.problem_ = {.rule = rule_of(router),
                      .width = width,
                      .ffn_width = ffn_width,
                      .weight = dtype,
                      .max_tokens = max_tokens,
                      .deterministic = deterministic()};
  experts.compute_capability_ = compute_capability;
  if (dtype != DType::bf16 || MoeRoute::refusal({experts.problem_.rule, max_tokens}) != nullptr) {
    return experts;
  }
  // Every number of tokens must have an entry, or the plain layout of weights serves all.
  experts.few_ = choose_moe_ffn(experts.problem_, compute_capability, 1);
  const MoeFfn::Kernel* many = choose_moe_ffn(experts.problem_, compute_capability, max_tokens);
  experts.packed_ = experts.few_ != nullptr && many != nullptr;
  return experts;
}

std::string_view Experts::name() const noexcept {
  return packed_ ? few_->name : "moe_ffn.cuda.plain";
}

Status Experts::reserve(ExpertScratch& scratch, CudaStream& stream) const {
  const int64_t row_bytes = row_offsets(problem_).end * 4;
  const int64_t workspace = packed_ ? moe_layer_workspace(problem_, compute_capability_) : 0;
  const int64_t hidden = packed_ ? 0 : problem_.max_tokens * router_.top_k * problem_.ffn_width * 4;
  const auto grow = [](CudaMemory& memory, int64_t bytes, const char* what) -> Status {
    if (memory.size() >= bytes) return {};
    SWITCHYARD_ASSIGN(memory, CudaMemory::allocate(bytes, what));
    return {};
  };
  SWITCHYARD_TRY(grow(scratch.workspace, workspace, "the experts' workspace"));
  SWITCHYARD_TRY(grow(scratch.plain_hidden, hidden, "the experts' hidden rows"));
  SWITCHYARD_TRY(grow(scratch.rows, row_bytes, "routing"));
  stream.fill(scratch.rows.data(), 0, scratch.rows.size());
  return {};
}

void Experts::run(const BlockWeights& weights, const ExpertCall& call, const ExpertScratch& scratch,
                  CudaStreamHandle stream) const {
  if (!packed_) return run_plain(weights, call, scratch, stream);
  const MoeFfn::Kernel* kernel = choose_moe_ffn(problem_, compute_capability_, call.tokens);
  SWITCHYARD_CHECK(kernel != nullptr, "no kernel takes {} tokens", call.tokens);
  const RowOffsets at = row_offsets(problem_);
  auto* rows = scratch.rows.as<int32_t>();
  const DeviceRouting routing{.expert = call.expert,
                              .weight = call.weight,
                              .pick_row = rows + at.pick_row,
                              .row_token = rows + at.row_token,
                              .slot_offset = rows + at.slot_offset,
                              .hit = rows + at.hit,
                              .num_hit = rows + at.num_hit,
                              .unusable = rows + at.unusable};
  const MoeFfn::Args args{.x = call.x,
                          .tokens = call.tokens,
                          .routing = routing,
                          .logits = call.logits,
                          .w13 = weights.experts_gate_up,
                          .w2 = weights.experts_down,
                          .scale = call.scale,
                          .y = call.y,
                          .next_norm = call.next_norm,
                          .next_epsilon = call.next_epsilon,
                          .next_x = call.next_x,
                          .sync = reinterpret_cast<uint32_t*>(rows + at.sync),
                          .workspace = scratch.workspace.data()};
  run_moe_layer(*kernel, problem_, args, stream);
}

void Experts::run_plain(const BlockWeights& weights, const ExpertCall& call,
                        const ExpertScratch& scratch, CudaStreamHandle stream) const {
  using switchyard::cuda::PlainMoe;
  const bool raw = router_.weigh == Weigh::raw;
  // The softmax over the picks equals renormalised weights without an epsilon.
  const bool epsilon = router_.weigh == Weigh::renormalize;
  switchyard::cuda::moe_plain({.x = call.x,
                               .logits = call.logits,
                               .gate_up = weights.experts_gate_up,
                               .down = weights.experts_down,
                               .dtype = dtype_,
                               .num_experts = router_.num_experts,
                               .top_k = router_.top_k,
                               .weigh = raw ? PlainMoe::Weigh::raw : PlainMoe::Weigh::renormalize,
                               .renormalize_epsilon = epsilon ? router_.renormalize_epsilon : 0,
                               .routed_scale = router_.scale,
                               .tokens = call.tokens,
                               .width = problem_.width,
                               .ffn_width = problem_.ffn_width,
                               .scale = call.scale,
                               .expert = call.expert,
                               .weight = call.weight,
                               .h = scratch.plain_hidden.as<float>(),
                               .y = call.y},
                              stream);
}

}  // namespace switchyard::model::cuda
