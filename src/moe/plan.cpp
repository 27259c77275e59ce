// SPDX-License-Identifier: Apache-2.0
#include "moe/plan.h"

namespace switchyard::moe {

DispatchPlan plan_local(const Routing& routing, const Step& step) {
  const ZoneScope zone(step.stream.tracer(), Zone::sort, step.layer);
  const int64_t tokens = routing.expert.shape[0], top_k = routing.expert.shape[1];
  const int64_t slots = routing.load.shape[0];
  const int32_t* expert = routing.expert.as<int32_t>();
  const int32_t* load = routing.load.as<int32_t>();
  const auto row_token = step.arena.take<int32_t>(tokens * top_k);
  const auto pick_row = step.arena.take<int32_t>(tokens * top_k);
  const auto offset = step.arena.take<int32_t>(slots + 1);
  const int64_t mark = step.arena.mark();
  const auto next = step.arena.take<int32_t>(slots);
  offset[0] = 0;
  for (int64_t s = 0; s < slots; ++s) {
    next[s] = offset[s];
    offset[s + 1] = offset[s] + load[s];
  }
  for (int64_t pick = 0; pick < tokens * top_k; ++pick) {
    const int32_t e = expert[pick];
    const int32_t row = e < 0 ? -1 : next[e]++;
    pick_row[pick] = row;
    if (row >= 0) row_token[row] = static_cast<int32_t>(pick / top_k);
  }
  step.arena.rewind(mark);
  const int64_t rows = offset[slots];
  return {rows,
          TensorView::of(row_token.data(), {rows}),
          TensorView::of(pick_row.data(), {tokens, top_k}),
          TensorView::of(offset.data(), {slots + 1}),
          {}};
}

void weigh_input(Routing& routing, DispatchPlan& plan, const Step& step) {
  const int64_t picks = routing.weight.shape[0] * routing.weight.shape[1];
  const auto row_weight = step.arena.take<float>(plan.rows), ones = step.arena.take<float>(picks);
  const int32_t* pick_row = plan.pick_row.as<int32_t>();
  const float* weight = routing.weight.as<float>();
  for (int64_t pick = 0; pick < picks; ++pick) {
    ones[pick] = 1;
    if (pick_row[pick] >= 0) row_weight[pick_row[pick]] = weight[pick];
  }
  plan.row_weight = TensorView::of(row_weight.data(), {plan.rows});
  routing.weight = TensorView::of(ones.data(), routing.weight.shape);
}

int64_t plan_room(int64_t max_tokens, int top_k, int num_slots) noexcept {
  return 2 * Arena::room<float>(max_tokens * top_k) + 2 * Arena::room<int32_t>(max_tokens * top_k) +
         Arena::room<int32_t>(num_slots + 1) + Arena::room<int32_t>(num_slots);
}

}  // namespace switchyard::moe
