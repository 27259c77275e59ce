// SPDX-License-Identifier: Apache-2.0
// Watchdog: a thread that looks whether an engine lives and gets on. It is dead when its loop has ended, or when requests
// are in and no step has ended for too long: one that hangs, or a loop that runs none.
//
// Time is counted in looks, each worth at most twice the pause between them, so that a process that was stopped, or a
// machine that slept, does not look like a hang.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "switchyard/engine.h"

namespace switchyard::serve {

/// How long an engine has not got on, of what was seen of it.
class StallClock {
 public:
  explicit StallClock(double look_s) : look_s_(look_s) {}
  /// Seconds so far. `passed_s` since the last look may be anything: a clock that jumped, a process that was stopped.
  double look(const EngineHealth& health, double passed_s);

 private:
  const double look_s_;
  uint64_t steps_ = 0;
  double stalled_s_ = 0;
};

struct WatchdogOptions {
  double stall_s = 300;  ///< 0: only a loop that has ended is dead
  double look_s = 0.25;
};

class Watchdog {
 public:
  /// `on_death` is called once, from the watchdog's thread.
  Watchdog(const Engine& engine, const WatchdogOptions& options,
           std::function<void(const std::string& why)> on_death);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();
  /// Why the engine is dead; empty: it is not, as far as can be seen.
  std::string look(double passed_s);

  const Engine& engine_;
  const WatchdogOptions options_;
  const std::function<void(const std::string&)> on_death_;
  StallClock stall_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace switchyard::serve
