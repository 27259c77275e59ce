// SPDX-License-Identifier: Apache-2.0
// The dispatch plan: where each pick's row goes. Physical; the only thing that exchange and experts
// need.
//
//   picks (t, k) are counting-sorted by slot, in token order within a slot, so the plan is a
//   permutation that depends on the routing alone. Cost O(T K + S).
#pragma once
#include <cstdint>

#include "kernels/ops/route.h"
#include "moe/step.h"
#include "tensor/view.h"

namespace switchyard::moe {

struct DispatchPlan {
  int64_t rows = 0;         ///< R: picks that were not dropped
  TensorView row_token;     ///< [R] i32: row r carries token row_token[r]
  TensorView pick_row;      ///< [T, K] i32: the row of each pick, -1 where dropped
  TensorView slot_offset;   ///< [S + 1] i32: slot s owns rows [slot_offset[s], slot_offset[s + 1])
  TensorView row_weight{};  ///< [R] f32: the row is multiplied on its way in; empty: it is not
};

/// One rank, every expert in the slot of its own number. Arrays live in the step's arena.
DispatchPlan plan_local(const Routing& routing, const Step& step);
/// Weights that scale what experts read (RouterSpec::weight_on_input): moves them from the picks of
/// the routing, which then weigh 1, to the rows of the plan.
void weigh_input(Routing& routing, DispatchPlan& plan, const Step& step);
/// Both of the above.
int64_t plan_room(int64_t max_tokens, int top_k, int num_slots) noexcept;

}  // namespace switchyard::moe
