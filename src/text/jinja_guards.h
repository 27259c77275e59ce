// SPDX-License-Identifier: Apache-2.0
// Guards of the interpreter: what is undone at the end of a C++ scope.
#pragma once
#include <memory>
#include <utility>

#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {

/// Counts how deep the interpreter has called itself.
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
  ~Deeper() { --interpreter_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

  Status check() const {
    if (interpreter_.depth_ <= interpreter_.limits_.depth) return {};
    return fail(Code::bad_request, "maximum recursion depth exceeded");
  }

 private:
  Interpreter& interpreter_;
};

/// Makes a scope the current one. A scope that a macro holds on to is kept, so that it can be cleared at the end.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() {
    auto inner = std::exchange(interpreter_.scope_, std::move(outer_));
    if (inner.use_count() > 1) interpreter_.kept_scopes_.push_back(std::move(inner));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> outer_;
};

}  // namespace switchyard::text::jinja
