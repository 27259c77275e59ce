// SPDX-License-Identifier: Apache-2.0
// The routing algorithms that we know, by name.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "kernels/ops/route.h"

namespace switchyard::moe {

struct Selector {
  std::string_view name;
  std::string_view help;  ///< one line for `switchyard inspect tables`
  Status (*check)(const RouterSpec&);
  void (*select)(const RouterSpec&, const float* logits, int64_t tokens, int32_t* expert,
                 float* weight, const Stream&);
};

std::span<const Selector> selectors();
/// Errors: Code::unsupported with the known names.
Result<const Selector*> find_selector(std::string_view name);

}  // namespace switchyard::moe
