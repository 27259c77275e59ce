// SPDX-License-Identifier: Apache-2.0
// The picks of the single launch of one sequence, alone: its device code, called by a kernel of the tests.
#pragma once
#include <cstdint>

#include "kernels/ops/moe_route.h"

namespace switchyard::testing {

/// One block, which all tallies are of. On the device: `logits` [E] f32 in, `picks` [K] and `usable` [1] out. For sm_90 alone.
void pick_from_tallies(const RouteRule& rule, const float* logits, uint64_t* tallies, int* picks,
                       int* usable);

/// Words of `tallies`.
int64_t tally_words();

}  // namespace switchyard::testing
