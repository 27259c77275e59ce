// SPDX-License-Identifier: Apache-2.0
// Capacity: at most C picks for each expert in a step; what does not fit passes by on the residual stream.
//
//   C is computed from the T tokens of one step on one rank, so what is dropped depends on which
//   sequences share the step. Serving is dropless unless a model or the user sets a factor.
//   in    expert [T, K] i32, weight [T, K] f32, demand [E] i32
//   out   expert, -1 where dropped; load [E] i32; counts.  Weights stay: none is redistributed.
//   cost  none when dropless, O(E) when all fit, else O(T K) on the calling thread; no allocation
// Source: Lepikhin et al. 2020, arXiv 2006.16668 (capacity); Fedus et al. 2021, arXiv 2101.03961
// (capacity factor). Dropping by weight: Riquelme et al. 2021, arXiv 2106.05974, per pick instead of
// per token.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kernels/ops/route.h"
#include "moe/step.h"

namespace switchyard::moe {

/// How c K T / E becomes a whole number; code bases differ.
struct CapacityRounding {
  std::string_view name;
  std::string_view help;  ///< one line: formula and where it is from
  /// c comes in units of kCapacityUnit.
  int64_t (*round)(int64_t factor, int64_t tokens, int64_t top_k, int64_t num_experts);
};

/// Factors count in ten-thousandths and all arithmetic is on integers: 1.1f is 1.1, not a little more.
inline constexpr int64_t kCapacityUnit = 10'000;

std::span<const CapacityRounding> capacity_roundings();
/// Errors: Code::bad_request with the known names.
Result<const CapacityRounding*> find_capacity_rounding(std::string_view name);

/// "drop_last" and "drop_lowest". Errors: Code::bad_request with the known names.
Result<Overflow> find_overflow(std::string_view name);

/// C: the most picks that an expert gets in a step of `tokens`. At least 1 whenever there are
/// tokens, also where the published formula gives 0 and so would silently drop every pick.
int64_t expert_capacity(const CapacityRounding& rounding, int64_t tokens, int top_k,
                        int num_experts, float factor);

/// Drops what exceeds the spec's capacity. Of an expert's picks drop_last keeps those of the
/// earliest tokens, drop_lowest those of the highest weight (of equal ones the earlier token): never
/// what came first in time, so the same step drops the same picks.
void limit_load(const RouterSpec& spec, Routing& routing, const Step& step);
int64_t limit_load_room(const RouterSpec& spec, int64_t max_tokens) noexcept;

}  // namespace switchyard::moe
