// SPDX-License-Identifier: Apache-2.0
// SparseMixer as Phi-3.5-MoE serves it: two rounds of argmax; each weighs its winner by softmax
// over the experts that come near it.
//
//   m = max z at i; expert j is near when not (m - z_j) / max(|z_j|, m) > 2 jitter
//   weight = softmax over the near experts, read at i
//   the second round leaves i out of maximum and softmax, and tests the other z_j as they were
//
// The two weights are not normalised together: both are often 1. A test of 0/0 is not above the
// threshold, so the expert is near. Source: Liu et al. 2023, arXiv 2310.00811 and Phi-3.5-MoE's
// reference (the sampling of its training is not done here).
#pragma once
#include <cstdint>

#include "moe/route/selector.h"

namespace switchyard::moe {

Status check_sparsemixer(const RouterSpec& spec);

int64_t sparsemixer(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                    const Stream& stream);

}  // namespace switchyard::moe
