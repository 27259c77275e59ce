// SPDX-License-Identifier: Apache-2.0
#include "engine/loop_thread.h"

#include <exception>

#include <pthread.h>

#include "base/log.h"
#include "base/result.h"

namespace switchyard::engine {

LoopThread::LoopThread(EngineLoop& loop) : loop_(loop), thread_([this] { run(); }) {}

LoopThread::~LoopThread() {
  loop_.stop();
  thread_.join();
}

std::string LoopThread::death() const {
  const std::lock_guard lock(mutex_);
  return death_;
}

void LoopThread::run() {
  ::pthread_setname_np(::pthread_self(), "switchyard-loop");
  try {
    loop_.run();
  } catch (const std::exception& thrown) {
    die(thrown.what());
  } catch (...) {
    die("something that is no std::exception was thrown");
  }
}

void LoopThread::die(const std::string& why) {
  const std::string death = "the engine's loop has ended: " + why;
  {
    const std::lock_guard lock(mutex_);
    death_ = death;
  }
  log(LogLevel::error, "{}", death);
  try {
    loop_.end_all(fail(Code::internal, "{}; restart the program", death));
  } catch (
      ...) {  // a sink, perhaps the one that threw before: nothing more can be done for the rest
    log(LogLevel::error, "not every request could be told");
  }
}

}  // namespace switchyard::engine
