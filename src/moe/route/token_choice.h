// SPDX-License-Identifier: Apache-2.0
// Token choice: every token picks its K best experts, within the limits of the spec.
//
//   in    logits z [T, E] f32, bias b [E] f32 (with selection_bias)
//   out   expert [T, K] i32 by falling choice;  weight [T, K] f32
//   cost  O(T E), and O(T E K) at worst; no allocation
//
//   score   s = softmax(z), sigmoid(z) or sqrt(ln(1 + e^z))
//   choice  c = s + b; without a bias z itself, which orders as s does and ties less
//   limit   experts of the M best groups (or devices) by max(c) or by the sum of the two best c
//   pick    the K largest c, equal ones by the lower expert
//   weight  s of the picks; raw, or divided by max(|s|_p + epsilon, minimum), or softmax over the K
//           logits; times scale. A divisor of 0 gives weights of 0.
//
// Sources: Shazeer et al. 2017, arXiv 1701.06538 (top-k gates); Fedus et al. 2021, arXiv 2101.03961
// (Switch: K = 1); Jiang et al. 2024, arXiv 2401.04088 (softmax over the picks); DeepSeek-AI 2024,
// arXiv 2405.04434 (device limit), arXiv 2412.19437 (sigmoid, bias, groups, scale); Wang et al.
// 2024, arXiv 2408.15664 (a bias that steers selection alone).
#pragma once
#include <cstdint>

#include "moe/route/selector.h"

namespace switchyard::moe {

Status check_token_choice(const RouterSpec& spec);

int64_t token_choice(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                     const Stream& stream);

}  // namespace switchyard::moe
