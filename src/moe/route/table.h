// SPDX-License-Identifier: Apache-2.0
// The routing algorithms that we know, by name.
#pragma once
#include <span>
#include <string_view>

#include "base/result.h"
#include "moe/route/selector.h"

namespace switchyard::moe {

std::span<const Selector> selectors();
/// Errors: Code::unsupported with the known names.
Result<const Selector*> find_selector(std::string_view name);

}  // namespace switchyard::moe
