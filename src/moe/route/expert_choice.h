// SPDX-License-Identifier: Apache-2.0
// Expert choice: every expert picks its C best tokens, so that all experts carry the same.
//
//   score  s = softmax(z) over the experts;  C = min(T, ceil(T * top_k / E)), top_k the picks per
//          token on average
//   pick   expert e takes the C tokens with the largest s[t, e], equal ones by the lower token;
//          unusable rows are never taken
//   weight s[t, e] * scale, not renormalised
//   out    [T, E]: a token has 0 to E picks, by falling weight, then -1
//
// What a token gets depends on the tokens beside and after it: not causal, and another result in
// another batch. Hence refused unless the configuration says that the model was trained so. Source:
// Zhou et al. 2022, arXiv 2202.09368.
#pragma once
#include <cstdint>

#include "moe/route/selector.h"

namespace switchyard::moe {

Status check_expert_choice(const RouterSpec& spec);
/// E.
int expert_choice_columns(const RouterSpec& spec);
/// C.
int64_t expert_choice_capacity(const RouterSpec& spec, int64_t tokens) noexcept;

int64_t expert_choice(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                      const Stream& stream);

}  // namespace switchyard::moe
