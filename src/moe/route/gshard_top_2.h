// SPDX-License-Identifier: Apache-2.0
// GShard's top-2 gate: the best expert, and the second best by chance.
//
//   g1, g2 = the two largest of softmax(z), divided by their sum
//   the second expert stays when 2 * g2 > u, u uniform in [0, 1): with chance min(1, 2 g2);
//   without random_second (serving) it always stays
//
// A second expert that does not stay leaves expert -1 and weight 0; the first keeps g1, so that the
// weights then sum to less than 1. Source: Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1;
// the places that it then fights for are those of moe/capacity.
#pragma once
#include <cstdint>

#include "moe/route/selector.h"

namespace switchyard::moe {

Status check_gshard_top_2(const RouterSpec& spec);

int64_t gshard_top_2(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                     const Stream& stream);

}  // namespace switchyard::moe
