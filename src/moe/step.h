// SPDX-License-Identifier: Apache-2.0
// What a MoE layer needs from the step that it is part of.
#pragma once
#include <functional>

#include "device/arena.h"
#include "device/device.h"
#include "kernels/ops/route.h"

namespace switchyard::moe {

/// The limits that sizes are computed from, at load.
struct Limits {
  int64_t max_tokens = 0;  ///< most T of a step
  int num_threads = 1;
};

/// One call's surroundings. Borrowed; lives as long as the call.
struct Step {
  const Stream& stream;
  Arena& arena;
  int layer = -1;            ///< for traces, and for routers that draw
  uint64_t first_token = 0;  ///< number of x's first token, for routers that draw
};

}  // namespace switchyard::moe
