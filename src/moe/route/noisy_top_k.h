// SPDX-License-Identifier: Apache-2.0
// Noisy top-k: the gate adds noise to its logits, keeps the K best and weighs them by softmax; and
// the two figures of balance that the noise makes differentiable.
//
//   noisy_e    = z_e + n_e * d_e,  n_e standard normal,
//   d_e        = noise * (softplus(noise logit_e) + 0.01), or noise when there is no noise gate
//   weight     = softmax over the K largest noisy logits
//   importance = sum over tokens of the weight of e                                      [E]
//   load       = sum over tokens of the chance that e is among the K best if only its own noise
//                were drawn anew: Phi((z_e - threshold_e) / d_e), threshold_e the K-th largest of
//                the others' noisy logits                                                [E]
//
// With noise 0 the picks are those of token choice, and load counts them. Source: Shazeer et al.
// 2017, arXiv 1701.06538, section 2.1 and appendix A; the 0.01 is that of the authors' code.
#pragma once
#include <cstdint>
#include <span>

#include "moe/route/selector.h"

namespace switchyard::moe {

Status check_noisy_top_k(const RouterSpec& spec);

int64_t noisy_top_k(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                    const Stream& stream);

/// Adds the picks of `tokens` tokens to importance [E].
void add_importance(const RouterSpec& spec, const SelectOutput& picks, int64_t tokens,
                    std::span<double> importance) noexcept;

/// Adds the smooth load of the tokens to load [E]; the noise is the one that noisy_top_k draws for
/// the same input. Unusable rows add nothing.
void add_smooth_load(const RouterSpec& spec, const SelectInput& in,
                     std::span<double> load) noexcept;

/// Variance over squared mean: 0 when all are equal. The loss is a weight times this.
double squared_variation(std::span<const double> values) noexcept;

}  // namespace switchyard::moe
