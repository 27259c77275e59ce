// SPDX-License-Identifier: Apache-2.0
#include "moe/route/router.h"

#include <algorithm>

namespace switchyard::moe {

Result<Router> Router::create(const RouterSpec& spec, int64_t width, const Limits& limits) {
  Router router;
  router.spec_ = spec;
  SWITCHYARD_ASSIGN(router.selector_, find_selector(spec.selector));
  SWITCHYARD_TRY(router.selector_->check(spec));
  const GroupedGemm::Problem gate{.n = spec.num_experts,
                                  .k = width,
                                  .max_rows = limits.max_tokens,
                                  .weight = DType::f32,
                                  .deterministic = true};
  SWITCHYARD_ASSIGN(router.gate_, Linear::create(gate));
  return router;
}

Routing Router::route(const float* x, int64_t tokens, const Step& step) const {
  const ZoneScope zone(step.stream.tracer(), Zone::router, step.layer);
  const int num_experts = spec_.num_experts, k = spec_.top_k;
  const auto expert = step.arena.take<int32_t>(tokens * k);
  const auto weight = step.arena.take<float>(tokens * k);
  const auto load = step.arena.take<int32_t>(num_experts);
  const int64_t mark = step.arena.mark();
  const auto logits = step.arena.take<float>(tokens * num_experts);
  gate_.run_dense(x, tokens, logits.data(), step.arena, step.stream);
  selector_->select(spec_, logits.data(), tokens, expert.data(), weight.data(), step.stream);
  step.arena.rewind(mark);
  std::fill(load.begin(), load.end(), 0);
  for (const int32_t e : expert) {
    if (e >= 0) ++load[e];
  }
  return {TensorView::of(expert.data(), {tokens, k}),
          TensorView::of(weight.data(), {tokens, k}),
          TensorView::of(load.data(), {num_experts}),
          TensorView::of(load.data(), {num_experts}),
          {}};
}

int64_t Router::room(const Limits& limits) const noexcept {
  const int64_t tokens = limits.max_tokens;
  return Arena::room<int32_t>(tokens * spec_.top_k) + Arena::room<float>(tokens * spec_.top_k) +
         Arena::room<int32_t>(spec_.num_experts) + Arena::room<float>(tokens * spec_.num_experts) +
         gate_.run_dense_room(limits.num_threads);
}

}  // namespace switchyard::moe
