// SPDX-License-Identifier: Apache-2.0
#include "engine/intake.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace switchyard::engine {
namespace {

/// Of one wait: the moment at which a much longer one ends has no number of nanoseconds, and it would end at once.
constexpr double kLongestWaitS = 86400;

}  // namespace

Result<RequestId> Intake::push(std::unique_ptr<Live> live) {
  const std::lock_guard lock(mutex_);
  if (pending_.stopping)
    return fail(Code::unavailable, "the engine is stopping and takes no more requests");
  // Under the lock, so that ids rise in the order of the queue.
  const RequestId id = ++last_id_;
  live->id = id;
  pending_.requests.push_back(std::move(live));
  ++alive_;
  has_news_.store(true, std::memory_order_release);
  news_.notify_one();
  return id;
}

void Intake::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  pending_.cancelled.push_back(id);
  has_news_.store(true, std::memory_order_release);
  news_.notify_one();
}

void Intake::stop() {
  const std::lock_guard lock(mutex_);
  pending_.stopping = true;
  has_news_.store(true, std::memory_order_release);
  news_.notify_one();
}

bool Intake::drain(News& news) {
  if (!has_news_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  news.requests.clear();
  news.cancelled.clear();
  std::swap(news.requests, pending_.requests);
  std::swap(news.cancelled, pending_.cancelled);
  news.stopping = pending_.stopping;
  has_news_.store(false, std::memory_order_relaxed);
  return true;
}

void Intake::wait(double seconds) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, std::chrono::duration<double>(std::min(seconds, kLongestWaitS)),
                 [&] { return has_news_.load(std::memory_order_relaxed); });
}

void Intake::ended() {
  const std::lock_guard lock(mutex_);
  if (--alive_ == 0) idle_.notify_all();
}

void Intake::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return alive_ == 0; });
}

int64_t Intake::alive() const {
  const std::lock_guard lock(mutex_);
  return alive_;
}

bool Intake::wait_idle_for(double seconds) {
  std::unique_lock lock(mutex_);
  const auto is_idle = [&] { return alive_ == 0; };
  for (; seconds > kLongestWaitS; seconds -= kLongestWaitS)
    if (idle_.wait_for(lock, std::chrono::duration<double>(kLongestWaitS), is_idle)) return true;
  return idle_.wait_for(lock, std::chrono::duration<double>(seconds), is_idle);
}

}  // namespace switchyard::engine
