// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/host_routing.h"

#include <algorithm>

#include "moe/capacity.h"

namespace switchyard::model::cuda {
namespace {

Status grow(PinnedMemory& memory, int64_t bytes) {
  if (memory.size() >= bytes) return {};
  SWITCHYARD_ASSIGN(memory, PinnedMemory::allocate(bytes, "routing on the host"));
  return {};
}

}  // namespace

Status HostRouting::reserve(const RouterSpec& spec, const moe::Selector& selector,
                            int64_t max_tokens) {
  const int64_t picks = max_tokens * moe::columns_of(selector, spec);
  SWITCHYARD_TRY(grow(logits_, max_tokens * spec.num_experts * 4));
  SWITCHYARD_TRY(grow(bias_, int64_t{spec.num_experts} * 4));
  SWITCHYARD_TRY(grow(expert_, picks * 4));
  SWITCHYARD_TRY(grow(weight_, picks * 4));
  const int64_t room = moe::limit_load_room(spec, max_tokens);
  if (arena_.size() >= room) return {};
  SWITCHYARD_ASSIGN(arena_, Arena::create(room));
  return {};
}

Status HostRouting::route(const RouterSpec& spec, const moe::Selector& selector, const Call& call,
                          HostLoads& loads, CudaStream& device, const Stream& host) {
  const int64_t experts = spec.num_experts, columns = moe::columns_of(selector, spec);
  const int64_t picks = call.tokens * columns;
  device.copy_out(logits_.data(), call.logits, call.tokens * experts * 4);
  if (call.bias != nullptr) device.copy_out(bias_.data(), call.bias, experts * 4);
  SWITCHYARD_TRY(device.synchronize("read the gate's logits"));
  auto* const expert = expert_.as<int32_t>();
  auto* const weight = weight_.as<float>();
  loads.counts = {};
  loads.counts.unusable_rows =
      selector.select(spec,
                      {.logits = logits_.as<float>(),
                       .tokens = call.tokens,
                       .bias = call.bias != nullptr ? bias_.as<float>() : nullptr,
                       .random = {.layer = static_cast<uint32_t>(call.layer)}},
                      {expert, weight}, host);
  std::ranges::fill(loads.demand, 0);
  for (int64_t i = 0; i < picks; ++i) {
    if (expert[i] >= 0) ++loads.demand[static_cast<size_t>(expert[i])];
  }
  const TensorView demand = TensorView::of(loads.demand.data(), {experts});
  Routing routing{TensorView::of(expert, {call.tokens, columns}),
                  TensorView::of(weight, {call.tokens, columns}), demand, demand, loads.counts};
  arena_.reset();
  moe::limit_load(spec, routing, {host, arena_, call.layer});
  std::copy_n(routing.load.as<int32_t>(), experts, loads.load.begin());
  loads.counts = routing.counts;
  device.copy_in(call.expert, expert, picks * 4);
  device.copy_in(call.weight, weight, picks * 4);
  return {};
}

}  // namespace switchyard::model::cuda
