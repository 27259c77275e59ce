// SPDX-License-Identifier: Apache-2.0
// The ranks of the blocks of the single launch of one sequence, alone: its device code, called by a kernel of the tests.
#pragma once
#include <cstdint>

#include "kernels/ops/l2_sides.h"

namespace switchyard::testing {

/// On the device: what each of `blocks` blocks gets as `rank`, and which `side` it is near. `counts` are count_bytes() of zeros.
/// For sm_90 alone.
void claim_ranks(const L2Sides& sides, int blocks, char* counts, int* rank, int* side);
int64_t count_bytes();

}  // namespace switchyard::testing
