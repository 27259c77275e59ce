// SPDX-License-Identifier: Apache-2.0
// One sink for the process behind a lock; the level is an atomic, so that a silent log costs one load.
// NOTE: a sink must not log itself: the lock is held while it runs.
#include "base/log.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace switchyard {
namespace {

constexpr int kSilent = 255;  // above every level

struct Log {
  std::atomic<int> lowest{kSilent};
  std::mutex mutex;  // one call of the sink at a time
  LogSink sink;
};

/// Never destroyed: other static objects may log while the program ends.
Log& the_log() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

void set_log_sink(LogSink sink, LogLevel lowest) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.lowest.store(sink ? static_cast<int>(lowest) : kSilent, std::memory_order_relaxed);
  log.sink = std::move(sink);
}

bool log_enabled(LogLevel level) noexcept {
  return static_cast<int>(level) >= the_log().lowest.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view text) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  if (log.sink) log.sink(level, text);
}

}  // namespace switchyard
