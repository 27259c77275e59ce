// SPDX-License-Identifier: Apache-2.0
// Door: where requests come in. A ticket is a place among those who wait for their first step; it is taken before any
// work is done for a request, so that who is turned away costs nothing, and it is given back when it goes out of scope.
// Threads: any.
#pragma once
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/result.h"
#include "schedule/queue_limits.h"

namespace switchyard::engine {

class Door;

class Ticket {
 public:
  Ticket() = default;
  Ticket(Ticket&& other) noexcept
      : door_(std::exchange(other.door_, nullptr)), tokens_(std::exchange(other.tokens_, 0)) {}
  Ticket& operator=(Ticket&& other) noexcept;
  ~Ticket() { give_back(); }

  /// The prompt has been counted. Errors: Code::overloaded.
  Status add_tokens(int64_t tokens);
  /// The request waits no longer.
  void give_back();

 private:
  friend class Door;
  explicit Ticket(Door& door) : door_(&door) {}

  Door* door_ = nullptr;  // null: no place
  int64_t tokens_ = 0;
};

class Door {
 public:
  explicit Door(const schedule::QueueLimits& limits) : count_(limits) {}

  /// Errors: Code::overloaded when the queue is full, Code::unavailable after close().
  Result<Ticket> enter();
  void close();

 private:
  friend class Ticket;

  std::mutex mutex_;
  schedule::QueueCount count_;
  bool closed_ = false;
};

}  // namespace switchyard::engine
