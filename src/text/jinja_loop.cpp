// SPDX-License-Identifier: Apache-2.0
// Loops: "for", its condition, and the variable "loop".
#include "text/jinja_guards.h"
#include "text/jinja_objects.h"

namespace switchyard::text::jinja {

void LoopState::clear() noexcept {
  items_.clear();
  ahead_.clear();
  previous_.reset();
  current_.reset();
  last_changed_.reset();
  scope_.reset();
}

Result<bool> LoopState::passes(const Value& item) {
  const Interpreter::ScopeGuard guard(interpreter_, std::make_shared<Scope>(scope_));
  SWITCHYARD_TRY(interpreter_.assign(statement_.target, item));
  SWITCHYARD_ASSIGN(const Value condition, interpreter_.evaluate(*statement_.condition));
  return condition.truth();
}

Status LoopState::look_ahead(size_t count) {
  while (ahead_.size() < count && next_ < items_.size()) {
    const Value item = items_[next_++];
    if (statement_.condition) {
      SWITCHYARD_ASSIGN(const bool passed, passes(item));
      if (!passed) continue;
    }
    ahead_.push_back(item);
  }
  return {};
}

Result<std::optional<Value>> LoopState::advance() {
  SWITCHYARD_TRY(look_ahead(1));
  if (ahead_.empty()) return std::optional<Value>();
  previous_ = std::move(current_);
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  ++index0_;
  return current_;
}

Result<std::optional<Value>> LoopState::attribute(std::string_view name) {
  using Found = std::optional<Value>;
  if (name == "index") return Found(Value(index0_ + 1));
  if (name == "index0") return Found(Value(index0_));
  if (name == "first") return Found(Value(index0_ == 0));
  if (name == "depth") return Found(Value(int64_t{1}));
  if (name == "depth0") return Found(Value(int64_t{0}));
  if (name == "previtem")
    return Found(previous_ ? *previous_ : Value::undefined("there is no previous item"));
  if (name == "last" || name == "nextitem") {
    SWITCHYARD_TRY(look_ahead(1));
    if (name == "last") return Found(Value(ahead_.empty()));
    return Found(ahead_.empty() ? Value::undefined("there is no next item") : ahead_.front());
  }
  if (name != "length" && name != "revindex" && name != "revindex0") return Found();
  SWITCHYARD_TRY(look_ahead(items_.size()));
  const auto left = static_cast<int64_t>(ahead_.size());
  if (name == "length") return Found(Value(index0_ + 1 + left));
  return Found(Value(name == "revindex" ? left + 1 : left));
}

Result<bool> LoopState::changed(const std::vector<Value>& values) {
  if (last_changed_ && last_changed_->size() == values.size()) {
    bool same = true;
    for (size_t i = 0; same && i < values.size(); ++i) {
      SWITCHYARD_ASSIGN(same, equal((*last_changed_)[i], values[i], interpreter_.budget()));
    }
    if (same) return false;
  }
  last_changed_ = values;
  return true;
}

Result<Interpreter::Flow> Interpreter::execute_pass(const Statement& statement,
                                                    const std::shared_ptr<LoopState>& loop,
                                                    Value item) {
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  scope_->set("loop", Value(std::shared_ptr<Object>(loop)));
  SWITCHYARD_TRY(assign(statement.target, std::move(item)));
  return execute(statement.body);
}

Result<Interpreter::Flow> Interpreter::execute_loop(const Statement& statement) {
  SWITCHYARD_ASSIGN(const Value value, evaluate(*statement.expr));
  SWITCHYARD_ASSIGN(std::vector<Value> items, iterate(value));
  const auto loop = std::make_shared<LoopState>(*this, statement, std::move(items), scope_);
  // As in the reference, "else" runs unless a pass has come to its end: a "break" in the first pass does not count.
  bool ended_pass = false;
  while (true) {
    SWITCHYARD_ASSIGN(std::optional<Value> item, loop->advance());
    if (!item) break;
    SWITCHYARD_TRY(budget_.charge(1));
    SWITCHYARD_ASSIGN(const Flow flow, execute_pass(statement, loop, *std::move(item)));
    if (flow == Flow::stop) break;
    ended_pass = ended_pass || flow == Flow::go_on;
  }
  if (ended_pass) return Flow::go_on;
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  return execute(statement.otherwise);
}

}  // namespace switchyard::text::jinja
