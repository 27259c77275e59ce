// SPDX-License-Identifier: Apache-2.0
// The objects of templates: namespaces, loops, macros, functions and methods.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {

/// namespace(): the one thing that templates can change.
class Namespace : public Object {
 public:
  std::string_view type_name() const noexcept override { return "Namespace"; }
  void clear() noexcept override { values.clear(); }

  std::map<std::string, Value, std::less<>> values;
};

class Macro : public Object {
 public:
  Macro(const MacroNode& macro, std::shared_ptr<Scope> scope)
      : node(macro), closure(std::move(scope)) {}
  std::string_view type_name() const noexcept override { return "Macro"; }
  bool is_callable() const noexcept override { return true; }
  void clear() noexcept override { closure.reset(); }

  const MacroNode& node;
  std::shared_ptr<Scope> closure;
};

class GlobalFunction : public Object {
 public:
  explicit GlobalFunction(Function* f) : function(f) {}
  std::string_view type_name() const noexcept override { return "function"; }
  bool is_callable() const noexcept override { return true; }

  Function* const function;
};

/// "text".strip, before it is called.
class BoundMethod : public Object {
 public:
  BoundMethod(Value receiver, Method* m) : self(std::move(receiver)), method(m) {}
  std::string_view type_name() const noexcept override { return "builtin_function_or_method"; }
  bool is_callable() const noexcept override { return true; }
  void clear() noexcept override { self = Value(); }

  Value self;
  Method* const method;
};

/// "loop" inside a loop. Items that the condition drops are passed over as late as the reference does, so that
/// conditions see what earlier passes did.
class LoopState : public Object {
 public:
  LoopState(Interpreter& interpreter, const Statement& statement, std::vector<Value> items,
            std::shared_ptr<Scope> scope)
      : interpreter_(interpreter),
        statement_(statement),
        items_(std::move(items)),
        scope_(std::move(scope)) {}
  std::string_view type_name() const noexcept override { return "LoopContext"; }
  void clear() noexcept override;

  /// The next item becomes the current one; nothing at the end.
  Result<std::optional<Value>> advance();
  /// loop.name; nothing for names that do not exist.
  Result<std::optional<Value>> attribute(std::string_view name);
  Result<bool> changed(const std::vector<Value>& values);
  int64_t index0() const noexcept { return index0_; }

 private:
  /// Looks ahead until `count` more items are known to come, or all are known.
  Status look_ahead(size_t count);
  Result<bool> passes(const Value& item);

  Interpreter& interpreter_;
  const Statement& statement_;
  std::vector<Value> items_;
  size_t next_ = 0;  // of items_, not looked at yet
  std::deque<Value> ahead_;
  int64_t index0_ = -1;
  std::optional<Value> previous_, current_;
  std::optional<std::vector<Value>> last_changed_;
  std::shared_ptr<Scope> scope_;  // around the loop
};

}  // namespace switchyard::text::jinja
