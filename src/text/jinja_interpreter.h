// SPDX-License-Identifier: Apache-2.0
// Interpreter: walks a syntax tree once, within limits, and collects the output.
//
// Scopes as in the reference: "if" has none; each pass of a loop, each macro, set block, filter block, with and
// generation has its own. Macros see the scope in which they are written, never that of their caller.
#pragma once
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja.h"
#include "text/jinja_ast.h"
#include "text/jinja_library.h"
#include "text/jinja_value.h"

namespace switchyard::text::jinja {

class LoopState;

class Scope : public std::enable_shared_from_this<Scope> {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  const Value* find(std::string_view name) const noexcept;
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  void clear() noexcept {
    values_.clear();
    parent_.reset();
  }

 private:
  std::shared_ptr<Scope> parent_;
  std::map<std::string, Value, std::less<>> values_;
};

class Interpreter {
 public:
  Interpreter(const RenderLimits& limits, const std::tm& now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Renders; once only. Variables are the entries of a dict. Errors: Code::bad_request with the line, except for
  /// raise_exception, whose text is the whole message.
  Result<Text> run(const Body& body, const Dict& variables);
  /// The error of run() is the template's own.
  bool raised() const noexcept { return raised_; }

  // For the library.
  Budget& budget() noexcept { return budget_; }
  const RenderLimits& limits() const noexcept { return limits_; }
  const std::tm& now() const noexcept { return now_; }
  Result<Value> attribute(const Value& value, std::string_view name);
  Result<Value> item(const Value& value, const Value& key);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> binary(Operator operation, const Value& left, const Value& right);
  Result<bool> contains(const Value& container, const Value& value);
  /// The elements of anything iterable; a generator is used up, or left unusable when read `partly`.
  Result<std::vector<Value>> iterate(const Value& value, bool partly = false);
  Result<Text> to_text(const Value& value);
  /// A string value, refused when longer than the limit.
  Result<Value> make_string(Text text);
  Status check_length(size_t bytes) const;
  /// The message of the error becomes exactly this text.
  Error raise(std::string message);
  /// Keeps the object until the end, when it is cleared.
  template <class T>
  Value keep(std::shared_ptr<T> object) {
    kept_.push_back(object);
    return Value(std::shared_ptr<Object>(std::move(object)));
  }
  Result<Value> call_macro(const MacroNode& node, const std::shared_ptr<Scope>& closure,
                           const Arguments& arguments);

 private:
  friend class LoopState;
  enum class Flow : uint8_t { go_on, stop, next };
  class ScopeGuard;
  class Deeper;

  // Statements: jinja_interpreter.cpp, jinja_loop.cpp.
  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> execute_branch(const Statement& statement);
  Result<Flow> execute_loop(const Statement& statement);
  Result<Flow> execute_pass(const Statement& statement, const std::shared_ptr<LoopState>& loop,
                            Value item);
  Result<Flow> execute_with(const Statement& statement);
  Status execute_print(const Expr& expr);
  Status execute_set(const Statement& statement);
  /// A block whose text is assigned, filtered or simply shown.
  Status execute_capture(const Statement& statement);
  Status execute_call_block(const Statement& statement);
  Status assign(const Target& target, Value value);
  Status write(const Text& text);
  /// Runs a body in a scope of its own; its output is the result.
  Result<Text> capture(const Body& body);
  Value make_macro(const MacroNode& node);
  Status bind_macro(const MacroNode& node, const Arguments& arguments);
  Status bind_parameters(const MacroNode& node, const Arguments& arguments,
                         std::vector<bool>& used);
  Status bind_extras(const MacroNode& node, const Arguments& arguments,
                     const std::vector<bool>& used);

  // Expressions: jinja_evaluate.cpp.
  Result<Value> evaluate(const Expr& expr);
  Result<Value> evaluate_kind(const Expr& expr);
  Result<Value> evaluate_name(const Expr& expr);
  Result<Value> evaluate_dict(const Expr& expr);
  Result<Value> evaluate_list(const Expr& expr);
  Result<Value> evaluate_sign(const Expr& expr);
  Result<Value> evaluate_pair(const Expr& expr);
  Result<Value> evaluate_logic(const Expr& expr);
  Result<Value> evaluate_concat(const Expr& expr);
  Result<Value> evaluate_compare(const Expr& expr);
  Result<Value> evaluate_conditional(const Expr& expr);
  Result<Value> evaluate_slice(const Expr& expr);
  Result<Value> evaluate_call(const Expr& expr, const Value* caller);
  Result<Value> evaluate_filter(const Expr& expr, const Value* innermost);
  Result<Value> evaluate_test(const Expr& expr);
  Result<std::vector<Value>> evaluate_all(const Expr& expr, size_t from);
  Result<Arguments> evaluate_arguments(const Expr& expr);
  Result<bool> compare(Comparison comparison, const Value& left, const Value& right);

  // Operators and access: jinja_operators.cpp, jinja_access.cpp.
  Result<Value> add(const Value& left, const Value& right);
  Result<Value> multiply(const Value& left, const Value& right);
  Result<Value> repeat(const Value& value, int64_t times);
  Result<Value> slice(const Value& value, const Value& start, const Value& stop, const Value& step);

  void note(int line) noexcept {
    if (line_ == 0) line_ = line;
  }

  const RenderLimits limits_;
  const std::tm now_;
  Budget budget_;
  int depth_ = 0;
  int line_ = 0;         // of the error
  bool raised_ = false;  // the error is the template's own
  Text* output_ = nullptr;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Object>> kept_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
};

}  // namespace switchyard::text::jinja
