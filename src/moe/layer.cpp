// SPDX-License-Identifier: Apache-2.0
#include "moe/layer.h"

#include <cmath>

#include "moe/capacity.h"
#include "moe/exchange/local.h"

namespace switchyard::moe {

Result<Layer> Layer::create(const LayerSpec& spec, const Limits& limits) {
  Layer layer;
  layer.spec_ = spec;
  SWITCHYARD_TRY(find_capacity_rounding(spec.router.capacity_rounding));
  SWITCHYARD_ASSIGN(layer.router_, Router::create(spec.router, spec.width, limits));
  const int64_t max_rows = layer.router_.most_picks(limits.max_tokens);
  SWITCHYARD_ASSIGN(layer.experts_, Experts::create({spec.router.num_experts, spec.width,
                                                     spec.ffn_width, max_rows, spec.weight}));
  SWITCHYARD_ASSIGN(layer.exchange_,
                    make_local_exchange({spec.router.num_experts, layer.router_.columns(),
                                         spec.width, max_rows, layer.experts_.in()}));
  if (spec.shared_width > 0) {
    SWITCHYARD_ASSIGN(layer.shared_, Experts::create({1, spec.width, spec.shared_width,
                                                      limits.max_tokens, spec.weight}));
  }
  if (spec.shared_width > 0 && spec.shared_gated) {
    const GroupedGemm::Problem gate{.n = 1,
                                    .k = spec.width,
                                    .max_rows = limits.max_tokens,
                                    .weight = DType::f32,
                                    .deterministic = true};
    SWITCHYARD_ASSIGN(layer.shared_gate_, Linear::create(gate));
  }
  return layer;
}

Routing Layer::forward(const float* x, int64_t tokens, float* y, const Step& step) {
  Routing routing = router_.route(x, tokens, step);
  limit_load(spec_.router, routing, step);
  DispatchPlan plan = plan_local(routing, step);
  Routing picks = routing;
  if (spec_.router.weight_on_input) weigh_input(picks, plan, step);
  exchange_->begin_dispatch(x, plan, step);
  const SharedOutput shared = run_shared(x, tokens, step);  // while rows travel
  const void* in = exchange_->finish_dispatch(plan, step);
  const float* out = experts_.forward(in, plan, step);
  exchange_->combine(out, picks, plan, shared, spec_.residual_scale, y, step);
  return routing;
}

SharedOutput Layer::run_shared(const float* x, int64_t tokens, const Step& step) const {
  if (!shared_) return {};
  SharedOutput output;
  output.value = shared_->forward_dense(x, tokens, Zone::shared_expert, step);
  if (!shared_gate_) return output;
  const ZoneScope zone(step.stream.tracer(), Zone::shared_expert, step.layer);
  const auto weight = step.arena.take<float>(tokens);
  shared_gate_->run_dense(x, tokens, weight.data(), step.arena, step.stream);
  for (float& w : weight) w = 1.0f / (1.0f + std::exp(-w));
  output.weight = weight.data();
  return output;
}

int64_t Layer::room(const Limits& limits) const noexcept {
  int64_t room = router_.room(limits) + exchange_->room(limits) +
                 experts_.room(limits.num_threads) +
                 plan_room(limits.max_tokens, router_.columns(), spec_.router.num_experts) +
                 limit_load_room(spec_.router, limits.max_tokens);
  if (shared_) room += shared_->dense_room(limits.num_threads);
  if (shared_gate_) {
    room +=
        Arena::room<float>(limits.max_tokens) + shared_gate_->run_dense_room(limits.num_threads);
  }
  return room;
}

}  // namespace switchyard::moe
