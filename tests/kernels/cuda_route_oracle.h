// SPDX-License-Identifier: Apache-2.0
// What device routing should give, by sorting, in f64.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/cuda_moe_layer.h"

namespace switchyard::testing {

/// The order of rows follows from the picks alone.
void expect_rows_follow_picks(const RoutingArrays& routing, const RouteRule& rule, int64_t tokens);

/// Picks and weights of `logits` [T, E] and `bias` [E] (or empty); tokens from `live` on have none.
void expect_picks(const RoutingArrays& routing, const RouteRule& rule,
                  const std::vector<float>& logits, const std::vector<float>& bias, int64_t tokens,
                  int64_t live);

}  // namespace switchyard::testing
