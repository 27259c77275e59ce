// SPDX-License-Identifier: Apache-2.0
#include "moe/baseline/routed_layer.h"

#include <algorithm>

#include "moe/baseline/padded.h"
#include "moe/exchange/local.h"

namespace switchyard::moe {
namespace {

int64_t max_rows(const RoutedLayerSpec& spec) {
  return std::max(spec.max_tokens * spec.top_k, spec.num_slots * spec.max_capacity);
}

}  // namespace

int64_t RoutedLayerSpec::weight_bytes() const noexcept {
  const int64_t matrices = 3 * width * ffn_width * dtype_bytes(weight);
  return num_slots * matrices * (naive ? 2 : 1);
}

int64_t RoutedLayerSpec::step_bytes() const noexcept {
  // Rows in and out and the hidden rows of all slots, or of one expert's two products.
  const int64_t rows = max_rows(*this) * (2 * width + ffn_width);
  return 4 * (rows + (naive ? max_tokens * (width + 2 * ffn_width) : 0));
}

Result<RoutedLayer> RoutedLayer::create(const RoutedLayerSpec& spec) {
  RoutedLayer layer;
  layer.spec_ = spec;
  const ExpertsSpec experts{spec.num_slots, spec.width, spec.ffn_width, max_rows(spec),
                            spec.weight};
  SWITCHYARD_ASSIGN(layer.experts_, Experts::create(experts));
  if (spec.naive) {
    SWITCHYARD_ASSIGN(layer.naive_, NaiveExperts::create(experts, spec.max_tokens));
  }
  SWITCHYARD_ASSIGN(layer.exchange_, make_local_exchange({spec.num_slots, spec.top_k, spec.width,
                                                          max_rows(spec), layer.experts_.in()}));
  return layer;
}

void RoutedLayer::pack(int slot, const TensorView& gate, const TensorView& up,
                       const TensorView& down) {
  experts_.gate_up().pack(slot, gate, &up);
  experts_.down().pack(slot, down);
  if (naive_) naive_->pack(slot, gate, up, down);
}

void RoutedLayer::forward(Execution execution, const float* x, const Routing& routing,
                          int64_t capacity, float* y, const Step& step) {
  const DispatchPlan plan = execution == Execution::padded ? plan_padded(routing, capacity, step)
                                                           : plan_local(routing, step);
  const float* out = nullptr;
  if (execution == Execution::naive) {
    SWITCHYARD_CHECK(naive_.has_value(), "the layer was created without the naive way");
    out = naive_->forward(x, plan, step);
  } else {
    exchange_->begin_dispatch(x, plan, step);
    out = experts_.forward(exchange_->finish_dispatch(plan, step), plan, step);
  }
  exchange_->combine(out, routing, plan, {}, 1, y, step);
}

int64_t RoutedLayer::room(int num_threads) const noexcept {
  const Limits limits{spec_.max_tokens, num_threads};
  const int64_t plan = std::max(
      plan_room(spec_.max_tokens, spec_.top_k, spec_.num_slots),
      plan_padded_room(spec_.max_tokens, spec_.top_k, spec_.num_slots, spec_.max_capacity));
  const int64_t grouped = exchange_->room(limits) + experts_.room(num_threads);
  const int64_t combine = exchange_->room(limits);
  return plan + std::max(grouped, naive_ ? naive_->room(num_threads) + combine : 0);
}

}  // namespace switchyard::moe
