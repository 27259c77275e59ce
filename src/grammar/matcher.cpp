// SPDX-License-Identifier: Apache-2.0
#include "grammar/matcher.h"

#include <utility>

#include "base/check.h"

namespace switchyard::grammar {

Constraint::Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> tokens, size_t max_bytes)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)), max_bytes_(max_bytes) {
  positions_.emplace(grammar_.network());
  masks_.emplace(*positions_, *tokens_);
}

void Constraint::make_room() {
  if (positions_->bytes() + masks_->bytes() <= max_bytes_) return;
  masks_.reset();
  positions_.emplace(grammar_.network());
  masks_.emplace(*positions_, *tokens_);
  ++times_;
}

Matcher::Matcher(std::shared_ptr<Constraint> constraint) : constraint_(std::move(constraint)) {
  constraint_->make_room();
  times_ = constraint_->times();
  positions_.push_back(constraint_->positions().start());
}

bool Matcher::is_over() const {
  return !accepted_.empty() && constraint_->tokens().is_end(accepted_.back());
}

int32_t Matcher::behind(int32_t position, int32_t token) {
  for (const char byte : constraint_->tokens().bytes(token))
    position = constraint_->positions().step(position, static_cast<uint8_t>(byte));
  return position;
}

void Matcher::refresh() {
  if (times_ == constraint_->times()) return;
  times_ = constraint_->times();
  positions_.assign(1, constraint_->positions().start());
  for (const int32_t token : accepted_)
    positions_.push_back(constraint_->tokens().is_end(token) ? Positions::kDead
                                                             : behind(positions_.back(), token));
}

std::span<const uint64_t> Matcher::allowed() {
  refresh();
  return constraint_->masks().of(positions_.back());
}

bool Matcher::accept(int32_t token) {
  constraint_->make_room();
  refresh();
  const TokenTrie& tokens = constraint_->tokens();
  if (token < 0 || token >= tokens.num_tokens()) return false;
  int32_t next = Positions::kDead;
  if (tokens.is_end(token)) {
    if (!can_end()) return false;
  } else {
    if (tokens.bytes(token).empty()) return false;
    next = behind(positions_.back(), token);
    const bool ends = constraint_->positions().ends(next);
    if (!ends && constraint_->positions().threads(next).empty()) return false;
  }
  accepted_.push_back(token);
  positions_.push_back(next);
  return true;
}

bool Matcher::can_end() {
  refresh();
  return constraint_->positions().ends(positions_.back());
}

bool Matcher::must_end() {
  return is_over() || (can_end() && constraint_->positions().threads(positions_.back()).empty());
}

void Matcher::rollback(int n) {
  SWITCHYARD_CHECK(n >= 0 && n <= std::ssize(accepted_), "{} of {} tokens", n, accepted_.size());
  accepted_.resize(accepted_.size() - static_cast<size_t>(n));
  positions_.resize(accepted_.size() + 1);
}

}  // namespace switchyard::grammar
