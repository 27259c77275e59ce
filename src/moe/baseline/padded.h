// SPDX-License-Identifier: Apache-2.0
// Padded capacity: every expert gets a buffer of C rows, whatever its load, and all E C rows are
// computed. A baseline that dropless execution is compared with; nothing serves with it.
//
//   slot s owns rows [s C, (s + 1) C): its picks in token order, then rows without a token, which
//   the exchange fills with zeros. R = E C
// The plan is all that differs: exchange, experts and combine are those of the layer, so the ratio
// to the dropless plan is the price of padding alone. GShard and Switch multiply by one-hot masks
// [T, E, C] to fill the same buffer, and Tutel, DeepSpeed-MoE and fairseq scatter into it; what they
// multiply afterwards is this. With C the largest load nothing is dropped ("dropless padding", as in
// MegaBlocks's comparison with Tutel).
// Source: Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1; Fedus et al. 2021, arXiv 2101.03961.
#pragma once
#include <cstdint>

#include "kernels/ops/route.h"
#include "moe/plan.h"
#include "moe/step.h"

namespace switchyard::moe {

/// `capacity` is C, at least the largest load: what exceeds a limit was dropped before. Arrays live
/// in the step's arena.
DispatchPlan plan_padded(const Routing& routing, int64_t capacity, const Step& step);
int64_t plan_padded_room(int64_t max_tokens, int top_k, int num_slots, int64_t capacity) noexcept;

}  // namespace switchyard::moe
