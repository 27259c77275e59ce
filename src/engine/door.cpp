// SPDX-License-Identifier: Apache-2.0
#include "engine/door.h"

namespace switchyard::engine {

Result<Ticket> Door::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_) return fail(Code::unavailable, "the engine is draining and takes no more requests");
  SWITCHYARD_TRY(count_.add_request());
  return Ticket(*this);
}

void Door::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  door_ = std::exchange(other.door_, nullptr);
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

Status Ticket::add_tokens(int64_t tokens) {
  const std::lock_guard lock(door_->mutex_);
  SWITCHYARD_TRY(door_->count_.add_tokens(tokens));
  tokens_ += tokens;
  return {};
}

void Ticket::give_back() {
  if (door_ == nullptr) return;
  const std::lock_guard lock(door_->mutex_);
  door_->count_.leave(tokens_);
  door_ = nullptr;
  tokens_ = 0;
}

}  // namespace switchyard::engine
