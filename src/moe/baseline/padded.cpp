// SPDX-License-Identifier: Apache-2.0
#include "moe/baseline/padded.h"

#include <algorithm>

namespace switchyard::moe {

DispatchPlan plan_padded(const Routing& routing, int64_t capacity, const Step& step) {
  const ZoneScope zone(step.stream.tracer(), Zone::sort, step.layer);
  const int64_t tokens = routing.expert.shape[0], top_k = routing.expert.shape[1];
  const int64_t slots = routing.load.shape[0], rows = slots * capacity;
  const int32_t* expert = routing.expert.as<int32_t>();
  const auto row_token = step.arena.take<int32_t>(rows);
  const auto pick_row = step.arena.take<int32_t>(tokens * top_k);
  const auto offset = step.arena.take<int32_t>(slots + 1);
  const int64_t mark = step.arena.mark();
  const auto next = step.arena.take<int32_t>(slots);
  for (int64_t s = 0; s <= slots; ++s) offset[s] = static_cast<int32_t>(s * capacity);
  std::copy_n(offset.begin(), slots, next.begin());
  std::fill(row_token.begin(), row_token.end(), -1);
  for (int64_t pick = 0; pick < tokens * top_k; ++pick) {
    const int32_t e = expert[pick];
    pick_row[pick] = e < 0 ? -1 : next[e]++;
    if (e < 0) continue;
    SWITCHYARD_CHECK(pick_row[pick] < offset[e + 1], "expert {} has more than {} picks", e,
                     capacity);
    row_token[pick_row[pick]] = static_cast<int32_t>(pick / top_k);
  }
  step.arena.rewind(mark);
  return {rows, TensorView::of(row_token.data(), {rows}),
          TensorView::of(pick_row.data(), {tokens, top_k}),
          TensorView::of(offset.data(), {slots + 1})};
}

int64_t plan_padded_room(int64_t max_tokens, int top_k, int num_slots, int64_t capacity) noexcept {
  return Arena::room<int32_t>(num_slots * capacity) + Arena::room<int32_t>(max_tokens * top_k) +
         Arena::room<int32_t>(num_slots + 1) + Arena::room<int32_t>(num_slots);
}

}  // namespace switchyard::moe
