// SPDX-License-Identifier: Apache-2.0
// LoopThread: the thread that turns a loop. Should the loop throw (the standard library does, when memory is out), the
// requests that are in end with an error, no more are taken, and the reason is kept: the process goes on, and can say so.
#pragma once
#include <mutex>
#include <string>
#include <thread>

#include "engine/loop.h"

namespace switchyard::engine {

class LoopThread {
 public:
  /// The loop must outlive it.
  explicit LoopThread(EngineLoop& loop);
  /// Ends every request as cancelled, and waits for the step that runs.
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  /// Why the loop ended by itself; empty: it lives. Any thread.
  std::string death() const;

 private:
  void run();
  void die(const std::string& why);

  EngineLoop& loop_;
  mutable std::mutex mutex_;
  std::string death_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace switchyard::engine
