// SPDX-License-Identifier: Apache-2.0
#include "serve/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/clock.h"

namespace switchyard::serve {

Watchdog::Watchdog(const Engine& engine, const WatchdogOptions& options,
                   std::function<void(const std::string&)> on_death)
    : engine_(engine),
      options_(options),
      on_death_(std::move(on_death)),
      steps_(engine.health().steps),
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
  int64_t last_ns = now_ns();
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, std::chrono::duration<double>(options_.look_s),
                         [this] { return stopping_; })) {
    lock.unlock();
    const int64_t now = now_ns();
    const double passed_s = static_cast<double>(now - std::exchange(last_ns, now)) * 1e-9;
    const std::string why = look(std::min(passed_s, 2 * options_.look_s));
    if (!why.empty()) return on_death_(why);
    lock.lock();
  }
}

std::string Watchdog::look(double passed_s) {
  const EngineHealth health = engine_.health();
  if (!health.death.empty()) return health.death;
  const bool gets_on = health.requests == 0 || health.steps != steps_;
  stalled_s_ = gets_on ? 0 : stalled_s_ + passed_s;
  steps_ = health.steps;
  if (options_.stall_s == 0 || stalled_s_ < options_.stall_s) return "";
  return fmt::format(
      "no step of the engine has ended for {} s, with {} requests in: it hangs, or a step takes "
      "longer than --stall-timeout",
      options_.stall_s, health.requests);
}

}  // namespace switchyard::serve
