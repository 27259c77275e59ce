// SPDX-License-Identifier: Apache-2.0
// A levelled log to a sink that the program sets. Silent by default: the library never prints.
#pragma once
#include <functional>
#include <string_view>

#include <fmt/format.h>

namespace switchyard {

enum class LogLevel : unsigned char { debug, info, warning, error };

/// Receives one message without a newline; may be called from any thread, one call at a time.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Sets the sink and the lowest level that reaches it. An empty sink silences the log.
void set_log_sink(LogSink sink, LogLevel lowest = LogLevel::info);
bool log_enabled(LogLevel level) noexcept;
void log_message(LogLevel level, std::string_view text);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace switchyard
