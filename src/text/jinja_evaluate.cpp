// SPDX-License-Identifier: Apache-2.0
// Expressions: the interpreter's walk over them. Operators are in jinja_operators.cpp, access in jinja_access.cpp.
#include "base/check.h"
#include "text/jinja_guards.h"
#include "text/jinja_objects.h"

namespace switchyard::text::jinja {
namespace {

// Deeper values are refused, because values are walked and freed by recursion.
constexpr int kMaxValueDepth = 100;

}  // namespace

Result<Value> Interpreter::evaluate(const Expr& expr) {
  const Deeper deeper(*this);
  Status status = deeper.check();
  if (status.ok()) status = budget_.charge(1);
  Result<Value> value =
      status.ok() ? evaluate_kind(expr) : Result<Value>(std::move(status).error());
  if (value.ok() && value->depth() > kMaxValueDepth)
    value = fail(Code::bad_request, "a value is more than {} levels deep", kMaxValueDepth);
  if (!value.ok()) note(expr.line);
  return value;
}

Result<Value> Interpreter::evaluate_kind(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::literal:
      return expr.constant;
    case Expr::Kind::name:
      return evaluate_name(expr);
    case Expr::Kind::list:
    case Expr::Kind::tuple:
      return evaluate_list(expr);
    case Expr::Kind::dict:
      return evaluate_dict(expr);
    case Expr::Kind::negation:
    case Expr::Kind::minus:
    case Expr::Kind::plus:
      return evaluate_sign(expr);
    case Expr::Kind::binary:
    case Expr::Kind::attribute:
    case Expr::Kind::item:
      return evaluate_pair(expr);
    case Expr::Kind::concat:
      return evaluate_concat(expr);
    case Expr::Kind::compare:
      return evaluate_compare(expr);
    case Expr::Kind::both:
    case Expr::Kind::either:
      return evaluate_logic(expr);
    case Expr::Kind::conditional:
      return evaluate_conditional(expr);
    case Expr::Kind::slice:
      return evaluate_slice(expr);
    case Expr::Kind::call:
      return evaluate_call(expr, nullptr);
    case Expr::Kind::filter:
      return evaluate_filter(expr, nullptr);
    case Expr::Kind::test:
      break;
  }
  return evaluate_test(expr);
}

Result<Value> Interpreter::evaluate_name(const Expr& expr) {
  if (const Value* found = scope_->find(expr.name)) return *found;
  if (Function* function = find_function(expr.name))
    return Value(std::shared_ptr<Object>(std::make_shared<GlobalFunction>(function)));
  return Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Result<std::vector<Value>> Interpreter::evaluate_all(const Expr& expr, size_t from) {
  std::vector<Value> values;
  values.reserve(expr.children.size() - from);
  for (size_t i = from; i < expr.children.size(); ++i) {
    SWITCHYARD_ASSIGN(Value value, evaluate(*expr.children[i]));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::evaluate_list(const Expr& expr) {
  SWITCHYARD_ASSIGN(std::vector<Value> values, evaluate_all(expr, 0));
  return expr.kind == Expr::Kind::list ? Value::list(std::move(values))
                                       : Value::tuple(std::move(values));
}

Result<Value> Interpreter::evaluate_dict(const Expr& expr) {
  SWITCHYARD_ASSIGN(std::vector<Value> values, evaluate_all(expr, 0));
  Dict dict;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    SWITCHYARD_TRY(budget_.charge(1 + dict.size() / 8));
    SWITCHYARD_TRY(dict.set(std::move(values[i]), std::move(values[i + 1])));
  }
  return Value::dict(std::move(dict));
}

Result<Value> Interpreter::evaluate_sign(const Expr& expr) {
  SWITCHYARD_ASSIGN(const Value value, evaluate(*expr.children[0]));
  if (expr.kind == Expr::Kind::negation) return Value(!value.truth());
  if (value.is_undefined()) return value.undefined_error();
  const bool minus = expr.kind == Expr::Kind::minus;
  if (value.kind() == Value::Kind::real) return Value(minus ? -value.as_real() : value.as_real());
  if (!value.is_integral())
    return fail(Code::bad_request, "bad operand type for unary {}: '{}'", minus ? '-' : '+',
                value.type_name());
  if (!minus) return Value(value.as_int());
  return binary(Operator::subtract, Value(int64_t{0}), value);
}

Result<Value> Interpreter::evaluate_pair(const Expr& expr) {
  SWITCHYARD_ASSIGN(const Value left, evaluate(*expr.children[0]));
  if (expr.kind == Expr::Kind::attribute) return attribute(left, expr.name);
  SWITCHYARD_ASSIGN(const Value right, evaluate(*expr.children[1]));
  return expr.kind == Expr::Kind::item ? item(left, right) : binary(expr.operation, left, right);
}

Result<Value> Interpreter::evaluate_concat(const Expr& expr) {
  SWITCHYARD_ASSIGN(const std::vector<Value> values, evaluate_all(expr, 0));
  Text text;
  for (const Value& value : values) {
    SWITCHYARD_TRY(append_str(value, text, budget_));
    SWITCHYARD_TRY(check_length(text.size()));
  }
  return Value(std::move(text));
}

Result<Value> Interpreter::evaluate_compare(const Expr& expr) {
  SWITCHYARD_ASSIGN(Value left, evaluate(*expr.children[0]));
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    SWITCHYARD_ASSIGN(Value right, evaluate(*expr.children[i + 1]));
    SWITCHYARD_ASSIGN(const bool holds, compare(expr.comparisons[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate_logic(const Expr& expr) {
  SWITCHYARD_ASSIGN(Value left, evaluate(*expr.children[0]));
  const bool decided = left.truth() == (expr.kind == Expr::Kind::either);
  return decided ? Result<Value>(std::move(left)) : evaluate(*expr.children[1]);
}

Result<Value> Interpreter::evaluate_conditional(const Expr& expr) {
  SWITCHYARD_ASSIGN(const Value condition, evaluate(*expr.children[0]));
  if (condition.truth()) return evaluate(*expr.children[1]);
  if (expr.children.size() > 2) return evaluate(*expr.children[2]);
  return Value::undefined("the condition of an 'if' without 'else' is false");
}

Result<Value> Interpreter::evaluate_slice(const Expr& expr) {
  std::vector<Value> parts;
  for (const ExprPtr& child : expr.children) {
    if (!child) {
      parts.emplace_back();
      continue;
    }
    SWITCHYARD_ASSIGN(Value value, evaluate(*child));
    parts.push_back(std::move(value));
  }
  return slice(parts[0], parts[1], parts[2], parts[3]);
}

Result<Arguments> Interpreter::evaluate_arguments(const Expr& expr) {
  Arguments arguments;
  SWITCHYARD_ASSIGN(arguments.positional, evaluate_all(expr, 1));
  for (const auto& [name, value] : expr.keywords) {
    for (const auto& other : arguments.named)
      if (other.first == name)
        return fail(Code::bad_request, "the argument '{}' is given twice", name);
    SWITCHYARD_ASSIGN(Value evaluated, evaluate(*value));
    arguments.named.emplace_back(name, std::move(evaluated));
  }
  return arguments;
}

Result<Value> Interpreter::evaluate_call(const Expr& expr, const Value* caller) {
  SWITCHYARD_ASSIGN(const Value callee, evaluate(*expr.children[0]));
  SWITCHYARD_ASSIGN(Arguments arguments, evaluate_arguments(expr));
  if (caller) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return callee.undefined_error();
  if (const auto macro = callee.as<Macro>()) {
    // The scope is held here: the macro's own variable may be assigned to during the call.
    const std::shared_ptr<Scope> closure = macro->closure;
    return call_macro(macro->node, closure, arguments);
  }
  if (const auto function = callee.as<GlobalFunction>())
    return function->function(*this, arguments);
  if (const auto method = callee.as<BoundMethod>())
    return method->method(*this, method->self, arguments);
  return fail(Code::bad_request, "'{}' object is not callable", callee.type_name());
}

Result<Value> Interpreter::evaluate_filter(const Expr& expr, const Value* innermost) {
  const Deeper deeper(*this);
  SWITCHYARD_TRY(deeper.check());
  Value input;
  if (!expr.children[0]) {
    SWITCHYARD_CHECK(innermost, "a filter without input outside of a filter block");
    input = *innermost;
  } else if (innermost && expr.children[0]->kind == Expr::Kind::filter) {
    SWITCHYARD_ASSIGN(input, evaluate_filter(*expr.children[0], innermost));
  } else {
    SWITCHYARD_ASSIGN(input, evaluate(*expr.children[0]));
  }
  if (!expr.filter) return fail(Code::bad_request, "there is no filter named '{}'", expr.name);
  SWITCHYARD_ASSIGN(const Arguments arguments, evaluate_arguments(expr));
  return expr.filter(*this, input, arguments);
}

Result<Value> Interpreter::evaluate_test(const Expr& expr) {
  SWITCHYARD_ASSIGN(const Value input, evaluate(*expr.children[0]));
  if (!expr.test) return fail(Code::bad_request, "there is no test named '{}'", expr.name);
  SWITCHYARD_ASSIGN(const Arguments arguments, evaluate_arguments(expr));
  SWITCHYARD_ASSIGN(const bool passed, expr.test(*this, input, arguments));
  return Value(passed);
}

Result<bool> Interpreter::compare(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::equal:
      return equal(left, right, budget_);
    case Comparison::less:
      return less(left, right, budget_);
    case Comparison::greater:
      return less(right, left, budget_);
    case Comparison::in:
      return contains(right, left);
    case Comparison::less_equal:
    case Comparison::greater_equal: {
      const bool swaps = comparison == Comparison::greater_equal;
      const Value& low = swaps ? right : left;
      const Value& high = swaps ? left : right;
      // Not "not high < low", which would be wrong for NaN.
      SWITCHYARD_ASSIGN(const bool below, less(low, high, budget_));
      return below ? Result<bool>(true) : equal(low, high, budget_);
    }
    case Comparison::unequal: {
      SWITCHYARD_ASSIGN(const bool same, equal(left, right, budget_));
      return !same;
    }
    case Comparison::not_in:
      break;
  }
  SWITCHYARD_ASSIGN(const bool found, contains(right, left));
  return !found;
}

}  // namespace switchyard::text::jinja
