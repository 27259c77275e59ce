// SPDX-License-Identifier: Apache-2.0
#include "moe/route/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/select.h"

namespace switchyard::moe {

Result<Router> Router::create(const RouterSpec& spec, int64_t width, const Limits& limits) {
  Router router;
  router.spec_ = spec;
  SWITCHYARD_ASSIGN(router.selector_, find_selector(spec.selector));
  SWITCHYARD_TRY(router.selector_->check(spec));
  SWITCHYARD_ASSIGN(router.select_, kernels::select<Route>({spec, router.selector_->select}));
  const GroupedGemm::Problem gate{.n = spec.num_experts,
                                  .k = width,
                                  .max_rows = limits.max_tokens,
                                  .weight = DType::f32,
                                  .deterministic = true};
  SWITCHYARD_ASSIGN(router.gate_, Linear::create(gate));
  if (spec.selection_bias) router.selection_bias_.assign(static_cast<size_t>(spec.num_experts), 0);
  return router;
}

Status Router::set_selection_bias(std::span<const float> bias) {
  if (bias.size() != selection_bias_.size()) {
    return fail(Code::bad_file, "router: a selection bias of {} values, expected {}", bias.size(),
                selection_bias_.size());
  }
  for (size_t e = 0; e < bias.size(); ++e) {
    if (std::isnan(bias[e]) || bias[e] == INFINITY) {
      return fail(Code::bad_file,
                  "router: the selection bias of expert {} is {}, expected a number", e, bias[e]);
    }
  }
  std::ranges::copy(bias, selection_bias_.begin());
  return {};
}

Status Router::set_devices(std::span<const int32_t> device_of) {
  if (spec_.max_devices == 0) {
    return fail(Code::bad_request, "router: devices are given, but max_devices is 0: no limit");
  }
  if (device_of.size() != static_cast<size_t>(spec_.num_experts)) {
    return fail(Code::bad_request, "router: devices of {} experts, expected {}", device_of.size(),
                spec_.num_experts);
  }
  std::vector<int> held(static_cast<size_t>(spec_.num_devices), 0);
  for (const int32_t device : device_of) {
    if (device < 0 || device >= spec_.num_devices) {
      return fail(Code::bad_request, "router: device {} of an expert, expected 0 to {}", device,
                  spec_.num_devices - 1);
    }
    ++held[static_cast<size_t>(device)];
  }
  std::ranges::sort(held);
  const int reachable = std::accumulate(held.begin(), held.begin() + spec_.max_devices, 0);
  if (reachable < spec_.top_k) {
    return fail(Code::bad_request,
                "router: top_k is {}, but the {} devices with the fewest experts hold only {}",
                spec_.top_k, spec_.max_devices, reachable);
  }
  device_of_.assign(device_of.begin(), device_of.end());
  return {};
}

int64_t Router::most_picks(int64_t tokens) const noexcept {
  // Where experts choose, the capacity is rounded up, for each expert.
  const int64_t rounded_up = columns() == spec_.top_k ? 0 : spec_.num_experts - 1;
  return std::min(tokens * columns(), tokens * spec_.top_k + rounded_up);
}

SelectInput Router::input(const float* logits, int64_t tokens, const Step& step) const noexcept {
  return {.logits = logits,
          .tokens = tokens,
          .bias = selection_bias_.empty() ? nullptr : selection_bias_.data(),
          .device_of = device_of_.empty() ? nullptr : device_of_.data(),
          .random = {seed_, static_cast<uint32_t>(step.layer), step.first_token}};
}

Routing Router::route(const float* x, int64_t tokens, const Step& step) const {
  const ZoneScope zone(step.stream.tracer(), Zone::router, step.layer);
  const int num_experts = spec_.num_experts, k = columns();
  const auto expert = step.arena.take<int32_t>(tokens * k);
  const auto weight = step.arena.take<float>(tokens * k);
  const auto load = step.arena.take<int32_t>(num_experts);
  const int64_t mark = step.arena.mark();
  const auto logits = step.arena.take<float>(tokens * num_experts);
  gate_.run_dense(x, tokens, logits.data(), step.arena, step.stream);
  const int64_t scratch = select_.workspace_bytes(step.stream.pool().num_threads());
  RouteCounts counts;
  select_.run({.in = input(logits.data(), tokens, step),
               .out = {expert.data(), weight.data()},
               .unusable_rows = &counts.unusable_rows},
              step.arena.take<std::byte>(scratch), step.stream);
  step.arena.rewind(mark);
  std::fill(load.begin(), load.end(), 0);
  for (const int32_t e : expert) {
    if (e >= 0) ++load[e];
  }
  return {TensorView::of(expert.data(), {tokens, k}), TensorView::of(weight.data(), {tokens, k}),
          TensorView::of(load.data(), {num_experts}), TensorView::of(load.data(), {num_experts}),
          counts};
}

int64_t Router::room(const Limits& limits) const noexcept {
  const int64_t tokens = limits.max_tokens, picks = tokens * columns();
  return Arena::room<int32_t>(picks) + Arena::room<float>(picks) +
         Arena::room<int32_t>(spec_.num_experts) + Arena::room<float>(tokens * spec_.num_experts) +
         std::max(gate_.run_dense_room(limits.num_threads),
                  Arena::room<std::byte>(select_.workspace_bytes(limits.num_threads)));
}

}  // namespace switchyard::moe
