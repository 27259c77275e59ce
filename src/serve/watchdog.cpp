// SPDX-License-Identifier: Apache-2.0
#include "serve/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace switchyard::serve {

double StallClock::look(const EngineHealth& health, double passed_s) {
  const bool gets_on = health.requests == 0 || health.steps != steps_;
  stalled_s_ = gets_on ? 0 : stalled_s_ + std::clamp(passed_s, 0.0, 2 * look_s_);
  steps_ = health.steps;
  return stalled_s_;
}

Watchdog::Watchdog(const Engine& engine, const WatchdogOptions& options,
                   std::function<void(const std::string&)> on_death)
    : engine_(engine),
      options_(options),
      on_death_(std::move(on_death)),
      stall_(options.look_s),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void Watchdog::run() {
  ::pthread_setname_np(::pthread_self(), "switchyard-dog");
  auto last = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, std::chrono::duration<double>(options_.look_s),
                         [this] { return stopping_; })) {
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    const std::string why =
        look(std::chrono::duration<double>(now - std::exchange(last, now)).count());
    if (!why.empty()) return on_death_(why);
    lock.lock();
  }
}

std::string Watchdog::look(double passed_s) {
  const EngineHealth health = engine_.health();
  if (!health.death.empty()) return health.death;
  const double stalled_s = stall_.look(health, passed_s);
  if (options_.stall_s == 0 || stalled_s < options_.stall_s) return "";
  return fmt::format(
      "no step of the engine has ended for {} s, with {} requests in: it hangs, or a step takes "
      "longer than --stall-timeout",
      options_.stall_s, health.requests);
}

}  // namespace switchyard::serve
