// SPDX-License-Identifier: Apache-2.0
// The capacity of experts as the user wants it, in place of what a model's configuration says.
#pragma once
#include <string>

#include "base/result.h"
#include "model/config.h"

namespace switchyard::model {

struct CapacityLimit {
  float factor = 0;                      ///< 0: dropless
  std::string overflow = "drop_lowest";  ///< which picks go: drop_lowest or drop_last
  std::string rounding = "ceil";         ///< a name in moe/capacity
};

/// Sets it in every router of `config`. Errors: Code::bad_request for a factor that is negative, not
/// finite or beyond the number of experts, for unknown names, and for a limit on a model without
/// experts.
Status limit_capacity(ModelConfig& config, const CapacityLimit& limit);

}  // namespace switchyard::model
