// SPDX-License-Identifier: Apache-2.0
#include "cli/log_sink.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "serve/request_log.h"

namespace switchyard::cli {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<size_t>(level)];
}

}  // namespace

void install_log_sink(LogLevel lowest) {
  auto logger = std::make_shared<spdlog::logger>(
      "switchyard", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(spdlog_level(lowest));
  auto seen = std::make_shared<std::set<std::string, std::less<>>>();
  // One call at a time, says the log; so `seen` needs no lock.
  set_log_sink(
      [logger, seen](LogLevel level, std::string_view text) {
        if (level == LogLevel::warning && !seen->emplace(text).second) return;
        logger->log(spdlog_level(level), "{}", text);
      },
      lowest);
}

LogLevel lowest_level(bool quiet, bool verbose) {
  if (quiet) return LogLevel::error;
  return verbose ? LogLevel::debug : LogLevel::warning;
}

void install_line_log_sink(LogLevel lowest, std::function<void(std::string)> write) {
  auto seen = std::make_shared<std::set<std::string, std::less<>>>();
  set_log_sink(
      [write = std::move(write), seen](LogLevel level, std::string_view text) {
        constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
        if (level == LogLevel::warning && !seen->emplace(text).second) return;
        write(fmt::format("{}: {}", kNames[static_cast<size_t>(level)], text));
      },
      lowest);
}

void install_json_log_sink(LogLevel lowest, std::function<void(std::string)> write) {
  set_log_sink(
      [write = std::move(write)](LogLevel level, std::string_view text) {
        constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
        write(serve::message_line(kNames[static_cast<size_t>(level)], text));
      },
      lowest);
}

}  // namespace switchyard::cli
