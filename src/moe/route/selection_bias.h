// SPDX-License-Identifier: Apache-2.0
// The rule that keeps a selection bias balancing the experts while a model is trained.
//
//   b_e += rate * sign(mean load - load_e)
//
// once per optimizer step, from loads summed over all tokens and ranks; an expert at the mean keeps
// its bias. The bias steers selection alone and receives no gradient. Source: Wang et al. 2024,
// arXiv 2408.15664 (loss-free balancing; rate 0.001); DeepSeek-AI 2024, arXiv 2412.19437.
#pragma once
#include <cstdint>
#include <span>

namespace switchyard::moe {

/// bias [E] f32, load [E]: picks per expert before any drop.
void update_selection_bias(std::span<float> bias, std::span<const int64_t> load,
                           float rate) noexcept;

}  // namespace switchyard::moe
