// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/experts.h"

#include <utility>

#include "base/check.h"
#include "base/environment.h"
#include "kernels/cuda/step.h"
#include "kernels/select.h"
#include "moe/route/table.h"

namespace switchyard::model::cuda {
namespace {

// Integers of ExpertScratch::rows. What outlives a call stands first, where layers of every shape agree.
struct RowOffsets {
  int64_t sync, words, unusable, pick_row, row_token, slot_offset, hit, num_hit, end;
};
RowOffsets row_offsets(const MoeFfn::Problem& problem) {
  const auto room = [](int64_t count) { return (count + 63) / 64 * 64; };
  const int64_t picks = room(problem.max_tokens * problem.rule.top_k);
  const int64_t experts = room(problem.rule.experts + 1);
  RowOffsets at{};
  at.words = room(MoeFfn::kSyncWords);
  at.unusable = at.words + room(2 * switchyard::cuda::GateScores::kWords);
  at.pick_row = at.unusable + room(1);
  at.row_token = at.pick_row + picks;
  at.slot_offset = at.row_token + picks;
  at.hit = at.slot_offset + experts;
  at.num_hit = at.hit + experts;
  at.end = at.num_hit + room(1);
  return at;
}

// Why the host must route; empty when the kernels do all of it.
std::string_view why_on_host(const RouterSpec& router) {
  if (router.selector != "token_choice") return "its selector has no form on the device";
  if (router.capacity_factor != 0) return "a capacity drops picks";
  if (router.scale == 0) return "a scale of 0 hides which rows could not be scored";
  return "";
}

RouteRule::Score score_of(Score score) {
  return score == Score::softmax   ? RouteRule::Score::softmax
         : score == Score::sigmoid ? RouteRule::Score::sigmoid
                                   : RouteRule::Score::sqrt_softplus;
}
RouteRule::Weigh weigh_of(Weigh weigh) {
  return weigh == Weigh::raw           ? RouteRule::Weigh::raw
         : weigh == Weigh::renormalize ? RouteRule::Weigh::renormalize
                                       : RouteRule::Weigh::softmax_after_top_k;
}

RouteRule rule_of(const RouterSpec& router) {
  RouteRule rule;
  rule.experts = router.num_experts;
  rule.top_k = router.top_k;
  rule.score = score_of(router.score);
  rule.weigh = weigh_of(router.weigh);
  const bool sums = router.group_score == GroupScore::sum_top_2;
  rule.group_score = sums ? RouteRule::GroupScore::sum_top_2 : RouteRule::GroupScore::max;
  rule.num_groups = router.num_groups;
  rule.top_groups = router.top_groups;
  if (router.max_devices > 0) {  // devices are groups by their best
    rule.group_score = RouteRule::GroupScore::max;
    rule.num_groups = router.num_devices;
    rule.top_groups = router.max_devices;
  }
  rule.epsilon = router.renormalize_epsilon;
  rule.minimum = router.renormalize_minimum;
  rule.norm_order = router.norm_order;
  rule.scale = router.scale;
  return rule;
}

// Of picks that are made elsewhere only their number matters.
RouteRule rule_of_given(const RouterSpec& router, int columns) {
  RouteRule rule;
  rule.experts = router.num_experts;
  rule.top_k = columns;
  return rule;
}

}  // namespace

int Experts::columns_of(const RouterSpec& router) {
  const Result<const moe::Selector*> selector = moe::find_selector(router.selector);
  return selector.ok() ? moe::columns_of(**selector, router) : router.top_k;
}

Result<Experts> Experts::create(const RouterSpec& router, int64_t width, int64_t ffn_width,
                                DType dtype, int64_t max_tokens, int compute_capability) {
  Experts experts;
  SWITCHYARD_ASSIGN(experts.selector_, moe::find_selector(router.selector));
  SWITCHYARD_TRY(experts.selector_->check(router));
  experts.router_ = router;
  experts.host_reason_ = why_on_host(router);
  if (experts.host_reason_.empty() && MoeRoute::refusal({rule_of(router), max_tokens}) != nullptr) {
    experts.host_reason_ = "the device routes at most 32 picks among 512 experts and 32 groups";
  }
  const bool on_host = !experts.host_reason_.empty();
  if (on_host) {
    const auto count = static_cast<size_t>(router.num_experts);
    experts.loads_ = HostLoads{std::vector<int32_t>(count), std::vector<int32_t>(count), {}};
  }
  experts.dtype_ = dtype;
  experts.problem_ = {.rule = on_host ? rule_of_given(router, columns_of(router)) : rule_of(router),
                      .width = width,
                      .ffn_width = ffn_width,
                      .weight = dtype,
                      .max_tokens = max_tokens,
                      .weight_on_input = router.weight_on_input,
                      .deterministic = deterministic()};
  experts.compute_capability_ = compute_capability;
  SWITCHYARD_ASSIGN(experts.pinned_, kernels::pinned_moe_ffn(experts.problem_, compute_capability));
  if (dtype != DType::bf16) return experts;
  // Every number of tokens must have an entry, or the plain layout of weights serves all.
  experts.few_ = experts.kernel_for(1);
  experts.packed_ = experts.few_ != nullptr && experts.kernel_for(max_tokens) != nullptr;
  return experts;
}

const MoeFfn::Kernel* Experts::kernel_for(int64_t tokens) const noexcept {
  return pinned_ != nullptr ? pinned_ : choose_moe_ffn(problem_, compute_capability_, tokens);
}

std::string_view Experts::name() const noexcept {
  return packed_ ? few_->name : "moe_ffn.cuda.plain";
}

Status Experts::reserve(ExpertScratch& scratch, CudaStream& stream) const {
  const int64_t row_bytes = row_offsets(problem_).end * 4;
  const int64_t workspace = packed_ ? moe_layer_workspace(problem_, compute_capability_)
                                    : MoeRoute::workspace_bytes({problem_.rule, 0});
  const int64_t hidden =
      packed_ ? 0 : problem_.max_tokens * problem_.rule.top_k * problem_.ffn_width * 4;
  const auto grow = [](CudaMemory& memory, int64_t bytes, const char* what) -> Status {
    if (memory.size() >= bytes) return {};
    SWITCHYARD_ASSIGN(memory, CudaMemory::allocate(bytes, what));
    return {};
  };
  SWITCHYARD_TRY(grow(scratch.workspace, workspace, "the experts' workspace"));
  SWITCHYARD_TRY(grow(scratch.plain_hidden, hidden, "the experts' hidden rows"));
  SWITCHYARD_TRY(grow(scratch.rows, row_bytes, "routing"));
  stream.fill(scratch.rows.data(), 0, scratch.rows.size());
  if (!loads_) return {};
  return scratch.host.reserve(router_, *selector_, problem_.max_tokens);
}

DeviceRouting Experts::routing_of(const ExpertCall& call,
                                  const ExpertScratch& scratch) const noexcept {
  const RowOffsets at = row_offsets(problem_);
  auto* rows = scratch.rows.as<int32_t>();
  return {.expert = call.expert,
          .weight = call.weight,
          .pick_row = rows + at.pick_row,
          .row_token = rows + at.row_token,
          .slot_offset = rows + at.slot_offset,
          .hit = rows + at.hit,
          .num_hit = rows + at.num_hit,
          .unusable = rows + at.unusable};
}

MoeFfn::Args Experts::args_of(const BlockWeights& weights, const ExpertCall& call,
                              const ExpertScratch& scratch) const noexcept {
  auto* const sync = scratch.rows.as<uint32_t>() + row_offsets(problem_).sync;
  return {.x = call.x,
          .tokens = call.tokens,
          .routing = routing_of(call, scratch),
          .logits = loads_ ? nullptr : call.logits,
          .bias = call.bias,
          .w13 = weights.experts_gate_up,
          .w2 = weights.experts_down,
          .sides = weights.sides,
          .scale = call.scale,
          .y = call.y,
          .next_norm = call.next_norm,
          .next_epsilon = call.next_epsilon,
          .next_x = call.next_x,
          .sync = sync,
          .workspace = scratch.workspace.data(),
          .routed = call.routed};
}

switchyard::cuda::FirstWeights Experts::first_weights(const BlockWeights& weights,
                                                      const ExpertCall& call,
                                                      const ExpertScratch& scratch) const noexcept {
  const MoeFfn::Kernel* kernel = kernel_for(call.tokens);
  if (!packed_ || kernel == nullptr) return {};
  return switchyard::cuda::first_weights(*kernel, problem_, args_of(weights, call, scratch));
}

switchyard::cuda::GateScores Experts::scores(const ExpertCall& call,
                                             const ExpertScratch& scratch) const noexcept {
  const MoeFfn::Kernel* kernel = kernel_for(call.tokens);
  if (!packed_ || loads_ || router_.selection_bias || kernel == nullptr || kernel->routes)
    return {};
  auto* const words = scratch.rows.as<int32_t>() + row_offsets(problem_).words;
  return {.rule = problem_.rule,
          .routing = routing_of(call, scratch),
          .words = reinterpret_cast<uint64_t*>(words)};
}

Status Experts::run(const BlockWeights& weights, const ExpertCall& call, ExpertScratch& scratch,
                    CudaStream& device, const Stream& host) {
  SWITCHYARD_CHECK(call.bias != nullptr || !router_.selection_bias, "a bias without values");
  if (loads_) {
    const HostRouting::Call routed{.logits = call.logits,
                                   .bias = call.bias,
                                   .tokens = call.tokens,
                                   .layer = call.layer,
                                   .expert = call.expert,
                                   .weight = call.weight};
    SWITCHYARD_TRY(scratch.host.route(router_, *selector_, routed, *loads_, device, host));
  }
  if (!packed_) {
    run_plain(weights, call, scratch, device.handle());
    return {};
  }
  const MoeFfn::Kernel* kernel = kernel_for(call.tokens);
  SWITCHYARD_CHECK(kernel != nullptr, "no kernel takes {} tokens", call.tokens);
  run_moe_layer(*kernel, problem_, args_of(weights, call, scratch), device.handle());
  return {};
}

void Experts::run_plain(const BlockWeights& weights, const ExpertCall& call,
                        const ExpertScratch& scratch, CudaStreamHandle stream) const {
  if (!loads_) {
    MoeRoute::run({problem_.rule, problem_.max_tokens},
                  {.logits = call.logits,
                   .bias = call.bias,
                   .tokens = call.tokens,
                   .routing = routing_of(call, scratch),
                   .workspace = scratch.workspace.data()},
                  stream);
  }
  switchyard::cuda::moe_plain({.x = call.x,
                               .gate_up = weights.experts_gate_up,
                               .down = weights.experts_down,
                               .dtype = dtype_,
                               .top_k = problem_.rule.top_k,
                               .weight_on_input = router_.weight_on_input,
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
