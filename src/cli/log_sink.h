// SPDX-License-Identifier: Apache-2.0
// Where the library's log goes: standard error, through spdlog.
#pragma once
#include "base/log.h"

namespace switchyard::cli {

/// Messages of at least `lowest` appear on standard error; warnings appear once however often they
/// come.
void install_log_sink(LogLevel lowest);

}  // namespace switchyard::cli
