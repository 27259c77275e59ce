// SPDX-License-Identifier: Apache-2.0
// Checks a checkpoint against its config without running it: every fault with its class, not only
// the first.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "model/tensor_map.h"

namespace switchyard::model {

enum class CheckDepth : uint8_t {
  headers,  ///< names, shapes and sizes
  weights,  ///< also reads every value and reports those that are not finite
};

/// All faults of a model folder; empty when it is sound. An Error only where nothing could be
/// opened at all.
Result<std::vector<Fault>> check_checkpoint(const std::string& folder, CheckDepth depth);

}  // namespace switchyard::model
