// SPDX-License-Identifier: Apache-2.0
// Token choice: every token picks its K best experts, within the limits of the spec.
//
//   in    logits  [T, E] f32
//   out   expert  [T, K] i32 by falling score;  weight [T, K] f32
//   cost  O(T E K), no allocation
// Ties go to the lower expert index. A token whose logits hold a NaN gets experts 0..K-1 with
// weight 0: it cannot spoil others, and the step's logits check reports it. Source: Shazeer et al.
// 2017, arXiv 1701.06538; Jiang et al. 2024, arXiv 2401.04088 (softmax over the picks).
#pragma once
#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "kernels/ops/route.h"

namespace switchyard::moe {

/// Refuses what this selector does not implement, as Code::unsupported.
Status check_token_choice(const RouterSpec& spec);

void token_choice(const RouterSpec& spec, const float* logits, int64_t tokens, int32_t* expert,
                  float* weight, const Stream& stream);

}  // namespace switchyard::moe
