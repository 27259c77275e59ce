// SPDX-License-Identifier: Apache-2.0
// Where the library's log goes: standard error, through spdlog.
#pragma once
#include <functional>
#include <string>

#include "base/log.h"

namespace switchyard::cli {

/// Messages of at least `lowest` appear on standard error; warnings appear once however often they
/// come.
void install_log_sink(LogLevel lowest);

/// Errors alone when quiet, everything when verbose, else from warnings on.
LogLevel lowest_level(bool quiet, bool verbose);

/// As install_log_sink(), in lines without colours, to whoever writes them.
void install_line_log_sink(LogLevel lowest, std::function<void(std::string)> write);

/// The same as lines of JSON, to whoever writes them.
void install_json_log_sink(LogLevel lowest, std::function<void(std::string)> write);

}  // namespace switchyard::cli
