// SPDX-License-Identifier: Apache-2.0
// The one documented list of environment variables that the library reads.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace switchyard {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view help;
};

/// Every variable that may be read; `switchyard doctor` prints them with their values.
std::span<const EnvironmentVariable> environment_variables();

/// The variable's value, or nothing when unset or empty. The name must be in the list (checked).
std::optional<std::string> environment(std::string_view name);

/// SWITCHYARD_DETERMINISTIC=1: choices that depend on the batch are fixed, at the price of speed.
bool deterministic();

}  // namespace switchyard
