// SPDX-License-Identifier: Apache-2.0
// Implements jinja_expression_parser.h: names, literals, brackets, and what is written behind them.
#include <charconv>

#include "text/jinja_expression_parser.h"

namespace switchyard::text::jinja {

Result<ExprPtr> ExpressionParser::primary() {
  switch (peek().kind) {
    case Token::Kind::name:
      return name_or_constant();
    case Token::Kind::integer:
    case Token::Kind::real:
      return number();
    case Token::Kind::string: {
      ExprPtr expr = make(Expr::Kind::literal);
      std::string text;
      while (peek().kind == Token::Kind::string) text += take().text;  // neighbours are one string
      expr->constant = Value::string(text, true);
      return expr;
    }
    case Token::Kind::symbol:
      break;
    default:
      return unexpected("an expression");
  }
  if (is_symbol("[")) return list();
  if (is_symbol("{")) return dict();
  if (!skip_symbol("(")) return unexpected("an expression");
  SWITCHYARD_ASSIGN(ExprPtr expr, tuple(true, true));
  SWITCHYARD_TRY(expect_symbol(")"));
  return expr;
}

Result<ExprPtr> ExpressionParser::name_or_constant() {
  ExprPtr expr = make(Expr::Kind::literal);
  std::string name = take().text;
  if (name == "true" || name == "True") {
    expr->constant = Value(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value(false);
  } else if (name != "none" && name != "None") {
    uses_.varargs |= name == "varargs";
    uses_.kwargs |= name == "kwargs";
    uses_.caller |= name == "caller";
    expr->kind = Expr::Kind::name;
    expr->name = std::move(name);
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::number() {
  ExprPtr expr = make(Expr::Kind::literal);
  const Token token = take();
  std::string_view digits = token.text;
  if (token.kind == Token::Kind::real) {
    double real = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), real);
    expr->constant = Value(real);
    return expr;
  }
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t integer = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), integer, base);
  if (error != std::errc{} || end != digits.data() + digits.size())
    return fail(Code::bad_request, "the number {} is malformed or above 2^63 - 1", token.text);
  expr->constant = Value(integer);
  return expr;
}

Result<ExprPtr> ExpressionParser::list() {
  ExprPtr expr = make(Expr::Kind::list);
  take();
  while (!is_symbol("]")) {
    SWITCHYARD_ASSIGN(ExprPtr item, expression());
    SWITCHYARD_TRY(adopt(*expr, std::move(item)));
    if (!skip_symbol(",")) break;
  }
  SWITCHYARD_TRY(expect_symbol("]"));
  return expr;
}

Result<ExprPtr> ExpressionParser::dict() {
  ExprPtr expr = make(Expr::Kind::dict);
  take();
  while (!is_symbol("}")) {
    SWITCHYARD_ASSIGN(ExprPtr key, expression());
    SWITCHYARD_TRY(expect_symbol(":"));
    SWITCHYARD_ASSIGN(ExprPtr value, expression());
    SWITCHYARD_TRY(adopt(*expr, std::move(key)));
    SWITCHYARD_TRY(adopt(*expr, std::move(value)));
    if (!skip_symbol(",")) break;
  }
  SWITCHYARD_TRY(expect_symbol("}"));
  return expr;
}

Result<ExprPtr> ExpressionParser::postfix(ExprPtr expr) {
  while (true) {
    if (is_symbol(".")) {
      SWITCHYARD_ASSIGN(expr, attribute(std::move(expr)));
    } else if (is_symbol("[")) {
      SWITCHYARD_ASSIGN(expr, subscript(std::move(expr)));
    } else if (is_symbol("(")) {
      SWITCHYARD_ASSIGN(expr, call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::filters_and_tests(ExprPtr expr) {
  while (true) {
    if (skip_symbol("|")) {
      SWITCHYARD_ASSIGN(expr, filter(std::move(expr)));
    } else if (is_word("is")) {
      SWITCHYARD_ASSIGN(expr, test(std::move(expr)));
    } else if (is_symbol("(")) {
      SWITCHYARD_ASSIGN(expr, call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::attribute(ExprPtr expr) {
  take();
  ExprPtr access = make(Expr::Kind::attribute);
  SWITCHYARD_TRY(adopt(*access, std::move(expr)));
  if (peek().kind == Token::Kind::name) {
    access->name = take().text;
    return access;
  }
  if (peek().kind != Token::Kind::integer) return unexpected("a name or a number behind '.'");
  access->kind = Expr::Kind::item;
  SWITCHYARD_ASSIGN(ExprPtr index, number());
  SWITCHYARD_TRY(adopt(*access, std::move(index)));
  return access;
}

Result<ExprPtr> ExpressionParser::subscript(ExprPtr expr) {
  take();
  ExprPtr access = make(Expr::Kind::item);
  SWITCHYARD_TRY(adopt(*access, std::move(expr)));
  ExprPtr first;
  if (!is_symbol(":")) {
    SWITCHYARD_ASSIGN(first, expression());
  }
  const bool slices = is_symbol(":");
  SWITCHYARD_TRY(adopt(*access, std::move(first)));
  if (slices) {
    access->kind = Expr::Kind::slice;
    for (int part = 0; part < 2; ++part) {  // stop and step
      ExprPtr next;
      if (skip_symbol(":") && !is_symbol(":") && !is_symbol("]")) {
        SWITCHYARD_ASSIGN(next, expression());
      }
      SWITCHYARD_TRY(adopt(*access, std::move(next)));
    }
  }
  SWITCHYARD_TRY(expect_symbol("]"));
  return access;
}

Result<ExprPtr> ExpressionParser::call(ExprPtr expr) {
  ExprPtr called = make(Expr::Kind::call);
  SWITCHYARD_TRY(adopt(*called, std::move(expr)));
  SWITCHYARD_TRY(arguments(*called));
  return called;
}

Status ExpressionParser::arguments(Expr& call) {
  SWITCHYARD_TRY(expect_symbol("("));
  while (!is_symbol(")")) {
    if (is_symbol("*") || is_symbol("**"))
      return fail(Code::bad_request, "'*' and '**' in arguments are not supported");
    if (peek().kind == Token::Kind::name && is_symbol("=", 1)) {
      std::string name = take().text;
      take();
      SWITCHYARD_ASSIGN(ExprPtr value, expression());
      call.depth = std::max(call.depth, value->depth + 1);
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else if (call.keywords.empty()) {
      SWITCHYARD_ASSIGN(ExprPtr value, expression());
      SWITCHYARD_TRY(adopt(call, std::move(value)));
    } else {
      return fail(Code::bad_request, "an argument without name follows one with a name");
    }
    if (!skip_symbol(",")) break;
  }
  return expect_symbol(")");
}

Result<ExprPtr> ExpressionParser::filter(ExprPtr input) {
  ExprPtr expr = make(Expr::Kind::filter);
  SWITCHYARD_TRY(adopt(*expr, std::move(input)));
  SWITCHYARD_ASSIGN(expr->name, expect_name());
  expr->filter = find_filter(expr->name);
  if (!expr->filter && conditional_depth_ == 0)
    return fail(Code::bad_request, "there is no filter named '{}'", expr->name);
  if (is_symbol("(")) SWITCHYARD_TRY(arguments(*expr));
  return expr;
}

Result<ExprPtr> ExpressionParser::filter_chain(ExprPtr input, bool first_has_bar) {
  if (first_has_bar && !skip_symbol("|")) return unexpected("'|' or '='");
  do {
    SWITCHYARD_ASSIGN(input, filter(std::move(input)));
  } while (skip_symbol("|"));
  return input;
}

bool ExpressionParser::starts_test_argument() const {
  switch (peek().kind) {
    case Token::Kind::name:
      return !is_word("else") && !is_word("or") && !is_word("and");
    case Token::Kind::string:
    case Token::Kind::integer:
    case Token::Kind::real:
      return true;
    default:
      return is_symbol("[") || is_symbol("{");
  }
}

Result<ExprPtr> ExpressionParser::test(ExprPtr input) {
  take();
  ExprPtr expr = make(Expr::Kind::test);
  const bool negated = skip_word("not");
  SWITCHYARD_TRY(adopt(*expr, std::move(input)));
  SWITCHYARD_ASSIGN(expr->name, expect_name());
  expr->test = find_test(expr->name);
  if (!expr->test && conditional_depth_ == 0)
    return fail(Code::bad_request, "there is no test named '{}'", expr->name);
  if (is_symbol("(")) {
    SWITCHYARD_TRY(arguments(*expr));
  } else if (starts_test_argument()) {
    if (is_word("is")) return fail(Code::bad_request, "tests cannot be chained with 'is'");
    SWITCHYARD_ASSIGN(ExprPtr argument, primary());
    SWITCHYARD_ASSIGN(argument, postfix(std::move(argument)));
    SWITCHYARD_TRY(adopt(*expr, std::move(argument)));
  }
  if (!negated) return expr;
  ExprPtr outer = make(Expr::Kind::negation);
  SWITCHYARD_TRY(adopt(*outer, std::move(expr)));
  return outer;
}

}  // namespace switchyard::text::jinja
