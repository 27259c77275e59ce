// SPDX-License-Identifier: Apache-2.0
// Implements jinja_interpreter.h: statements and scopes. Loops and macros are in jinja_loop.cpp and jinja_macro.cpp.
#include "text/jinja_interpreter.h"

#include "text/jinja_guards.h"
#include "text/jinja_objects.h"

namespace switchyard::text::jinja {

const Value* Scope::find(std::string_view name) const noexcept {
  for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
    const auto found = scope->values_.find(name);
    if (found != scope->values_.end()) return &found->second;
  }
  return nullptr;
}

Interpreter::Interpreter(const RenderLimits& limits, const std::tm& now)
    : limits_(limits), now_(now), budget_(limits.work), scope_(std::make_shared<Scope>(nullptr)) {
  kept_scopes_.push_back(scope_);
}

Interpreter::~Interpreter() {
  // Macros hold scopes and scopes hold macros; namespaces may hold themselves.
  for (const auto& object : kept_) object->clear();
  for (const auto& scope : kept_scopes_) scope->clear();
}

Error Interpreter::raise(std::string message) {
  raised_ = true;
  return Error(Code::bad_request, std::move(message));
}

Result<Text> Interpreter::run(const Body& body, const Dict& variables) {
  for (const Dict::Entry& entry : variables.entries()) {
    if (!entry.first.is_string())
      return fail(Code::bad_request, "the name of a variable is no string");
    scope_->set(std::string(entry.first.view()), entry.second);
  }
  Text output;
  output_ = &output;
  const auto flow = execute(body);
  output_ = nullptr;
  if (flow.ok()) return output;
  if (raised_) return flow.error();
  return with_context(flow.error(), fmt::format("line {}", line_));
}

Status Interpreter::check_length(size_t bytes) const {
  if (bytes <= limits_.output_bytes) return {};
  return fail(Code::bad_request, "a text becomes longer than {} bytes", limits_.output_bytes);
}

Result<Value> Interpreter::make_string(Text text) {
  SWITCHYARD_TRY(check_length(text.size()));
  SWITCHYARD_TRY(budget_.charge_text(text.size()));
  return Value(std::move(text));
}

Result<Text> Interpreter::to_text(const Value& value) {
  Text text;
  SWITCHYARD_TRY(append_str(value, text, budget_));
  return text;
}

Status Interpreter::write(const Text& text) {
  SWITCHYARD_TRY(check_length(output_->size() + text.size()));
  SWITCHYARD_TRY(budget_.charge_text(text.size()));
  output_->append(text);
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    auto flow = execute(statement);
    if (!flow.ok()) {
      note(statement.line);
      return flow;
    }
    if (*flow != Flow::go_on) return flow;
  }
  return Flow::go_on;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  const Deeper deeper(*this);
  SWITCHYARD_TRY(deeper.check());
  SWITCHYARD_TRY(budget_.charge(1));
  Status status;
  switch (statement.kind) {
    case Statement::Kind::stop:
      return Flow::stop;
    case Statement::Kind::next:
      return Flow::next;
    case Statement::Kind::branch:
      return execute_branch(statement);
    case Statement::Kind::loop:
      return execute_loop(statement);
    case Statement::Kind::with:
      return execute_with(statement);
    case Statement::Kind::text:
      status = write(statement.text);
      break;
    case Statement::Kind::print:
      status = execute_print(*statement.expr);
      break;
    case Statement::Kind::set:
      status = execute_set(statement);
      break;
    case Statement::Kind::macro:
      scope_->set(statement.macro->name, make_macro(*statement.macro));
      break;
    case Statement::Kind::set_block:
    case Statement::Kind::filter:
    case Statement::Kind::scope:
      status = execute_capture(statement);
      break;
    case Statement::Kind::call:
      status = execute_call_block(statement);
      break;
  }
  SWITCHYARD_TRY(status);
  return Flow::go_on;
}

Result<Interpreter::Flow> Interpreter::execute_branch(const Statement& statement) {
  for (const Statement::Branch& branch : statement.branches) {
    if (branch.condition) {
      SWITCHYARD_ASSIGN(const Value condition, evaluate(*branch.condition));
      if (!condition.truth()) continue;
    }
    return execute(branch.body);
  }
  return Flow::go_on;
}

Result<Interpreter::Flow> Interpreter::execute_with(const Statement& statement) {
  std::vector<Value> values;  // in the scope outside
  for (const auto& [target, expr] : statement.assignments) {
    SWITCHYARD_ASSIGN(Value value, evaluate(*expr));
    values.push_back(std::move(value));
  }
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  for (size_t i = 0; i < values.size(); ++i)
    SWITCHYARD_TRY(assign(statement.assignments[i].first, std::move(values[i])));
  return execute(statement.body);
}

Status Interpreter::execute_print(const Expr& expr) {
  SWITCHYARD_ASSIGN(const Value value, evaluate(expr));
  if (value.is_string()) return write(value.as_text());
  SWITCHYARD_ASSIGN(const Text text, to_text(value));
  return write(text);
}

Status Interpreter::execute_set(const Statement& statement) {
  SWITCHYARD_ASSIGN(Value value, evaluate(*statement.expr));
  return assign(statement.target, std::move(value));
}

Result<Text> Interpreter::capture(const Body& body) {
  Text text;
  Text* const outer = std::exchange(output_, &text);
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  const auto flow = execute(body);
  output_ = outer;
  SWITCHYARD_TRY(flow);
  return text;
}

Status Interpreter::execute_capture(const Statement& statement) {
  SWITCHYARD_ASSIGN(Text text, capture(statement.body));
  Value value(std::move(text));
  if (statement.expr) {
    SWITCHYARD_ASSIGN(value, evaluate_filter(*statement.expr, &value));
  }
  if (statement.kind == Statement::Kind::set_block)
    return assign(statement.target, std::move(value));
  SWITCHYARD_ASSIGN(const Text shown, to_text(value));
  return write(shown);
}

Status Interpreter::execute_call_block(const Statement& statement) {
  const Value caller = make_macro(*statement.macro);
  SWITCHYARD_ASSIGN(const Value value, evaluate_call(*statement.expr, &caller));
  SWITCHYARD_ASSIGN(const Text text, to_text(value));
  return write(text);
}

Status Interpreter::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    const Value* found = scope_->find(target.names[0]);
    const auto space = found ? found->as<Namespace>() : nullptr;
    if (!space)
      return fail(Code::bad_request, "cannot assign to '{}.{}': '{}' is no namespace",
                  target.names[0], target.attribute, target.names[0]);
    space->values[target.attribute] = std::move(value);
    return {};
  }
  if (!target.unpacks) {
    scope_->set(target.names[0], std::move(value));
    return {};
  }
  SWITCHYARD_ASSIGN(std::vector<Value> items, iterate(value));
  if (items.size() != target.names.size())
    return fail(Code::bad_request, "cannot unpack {} values into {} names", items.size(),
                target.names.size());
  for (size_t i = 0; i < items.size(); ++i) scope_->set(target.names[i], std::move(items[i]));
  return {};
}

}  // namespace switchyard::text::jinja
