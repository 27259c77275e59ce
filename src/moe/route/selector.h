// SPDX-License-Identifier: Apache-2.0
// A routing algorithm and its name. What it reads and writes is said in kernels/ops/route.h.
#pragma once
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "kernels/ops/route.h"

namespace switchyard::moe {

struct Selector {
  std::string_view name;
  std::string_view help;  ///< one line for `switchyard inspect tables`
  /// Refuses specs that mean nothing (Code::bad_request) or something else (Code::unsupported).
  Status (*check)(const RouterSpec&);
  SelectFunction* select;
  /// The columns K of the output; null: top_k.
  int (*columns)(const RouterSpec&) = nullptr;
};

/// K of the output.
inline int columns_of(const Selector& selector, const RouterSpec& spec) {
  return selector.columns != nullptr ? selector.columns(spec) : spec.top_k;
}

}  // namespace switchyard::moe
