// SPDX-License-Identifier: Apache-2.0
// Implements jinja_expression_parser.h: operators. What they stand between is in jinja_primary_parser.cpp.
#include "text/jinja_expression_parser.h"

#include <optional>

namespace switchyard::text::jinja {
namespace {

constexpr int kMaxNesting = 64;  // brackets in brackets; each level costs a dozen calls
constexpr int kMaxDepth = 200;   // of a tree

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::print_end:
      return "'}}'";
    case Token::Kind::block_end:
      return "'%}'";
    case Token::Kind::end:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

std::optional<Comparison> comparison_of(const Token& token) {
  if (token.kind == Token::Kind::name && token.text == "in") return Comparison::in;
  if (token.kind != Token::Kind::symbol) return std::nullopt;
  if (token.text == "==") return Comparison::equal;
  if (token.text == "!=") return Comparison::unequal;
  if (token.text == "<") return Comparison::less;
  if (token.text == "<=") return Comparison::less_equal;
  if (token.text == ">") return Comparison::greater;
  if (token.text == ">=") return Comparison::greater_equal;
  return std::nullopt;
}

}  // namespace

/// Counts how deep the parser has called itself.
class Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) { ++parser_.nesting_; }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool too_deep() const { return parser_.nesting_ > kMaxNesting; }

 private:
  ExpressionParser& parser_;
};

Error ExpressionParser::unexpected(std::string_view expected) const {
  return fail(Code::bad_request, "unexpected {}, expected {}", describe(peek()), expected);
}

bool ExpressionParser::skip_symbol(std::string_view text) {
  if (!is_symbol(text)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_word(std::string_view text) {
  if (!is_word(text)) return false;
  take();
  return true;
}

Status ExpressionParser::expect_symbol(std::string_view text) {
  if (!skip_symbol(text)) return unexpected(fmt::format("'{}'", text));
  return {};
}

Status ExpressionParser::expect(Token::Kind kind) {
  if (peek().kind != kind) return unexpected(kind == Token::Kind::print_end ? "'}}'" : "'%}'");
  take();
  return {};
}

Result<std::string> ExpressionParser::expect_name() {
  if (peek().kind != Token::Kind::name) return unexpected("a name");
  return take().text;
}

ExprPtr ExpressionParser::make(Expr::Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = peek().line;
  return expr;
}

Status ExpressionParser::adopt(Expr& parent, ExprPtr child) const {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  parent.children.push_back(std::move(child));
  if (parent.depth <= kMaxDepth) return {};
  return fail(Code::bad_request, "an expression is more than {} levels deep", kMaxDepth);
}

Result<ExprPtr> ExpressionParser::pair(Expr::Kind kind, Operator operation, ExprPtr left,
                                       ExprPtr right) const {
  ExprPtr expr = make(kind);
  expr->line = left->line;
  expr->operation = operation;
  SWITCHYARD_TRY(adopt(*expr, std::move(left)));
  SWITCHYARD_TRY(adopt(*expr, std::move(right)));
  return expr;
}

Result<ExprPtr> ExpressionParser::expression() {
  const Nesting nesting(*this);
  if (nesting.too_deep())
    return fail(Code::bad_request, "expressions lie more than {} levels in one another",
                kMaxNesting);
  SWITCHYARD_ASSIGN(ExprPtr left, either());
  while (skip_word("if")) {
    ExprPtr expr = make(Expr::Kind::conditional);
    // The reference forgives unknown filters in all three parts; "then" has been read already.
    ++conditional_depth_;
    auto condition = either();
    --conditional_depth_;
    SWITCHYARD_TRY(condition);
    SWITCHYARD_TRY(adopt(*expr, *std::move(condition)));
    SWITCHYARD_TRY(adopt(*expr, std::move(left)));
    if (skip_word("else")) {
      ++conditional_depth_;
      auto otherwise = expression();
      --conditional_depth_;
      SWITCHYARD_TRY(otherwise);
      SWITCHYARD_TRY(adopt(*expr, *std::move(otherwise)));
    }
    left = std::move(expr);
  }
  return left;
}

Result<ExprPtr> ExpressionParser::either() {
  SWITCHYARD_ASSIGN(ExprPtr left, both());
  while (skip_word("or")) {
    SWITCHYARD_ASSIGN(ExprPtr right, both());
    SWITCHYARD_ASSIGN(left, pair(Expr::Kind::either, {}, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::both() {
  SWITCHYARD_ASSIGN(ExprPtr left, negation());
  while (skip_word("and")) {
    SWITCHYARD_ASSIGN(ExprPtr right, negation());
    SWITCHYARD_ASSIGN(left, pair(Expr::Kind::both, {}, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::negation() {
  int count = 0;  // a loop, so that no row of "not" can exhaust the stack
  while (skip_word("not")) ++count;
  SWITCHYARD_ASSIGN(ExprPtr expr, compare());
  for (; count > 0; --count) {
    ExprPtr outer = make(Expr::Kind::negation);
    SWITCHYARD_TRY(adopt(*outer, std::move(expr)));
    expr = std::move(outer);
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::compare() {
  SWITCHYARD_ASSIGN(ExprPtr left, math());
  ExprPtr expr;
  while (true) {
    std::optional<Comparison> comparison = comparison_of(peek());
    if (is_word("not") && is_word("in", 1)) {
      take();
      comparison = Comparison::not_in;
    }
    if (!comparison) break;
    take();
    if (!expr) {
      expr = make(Expr::Kind::compare);
      SWITCHYARD_TRY(adopt(*expr, std::move(left)));
    }
    expr->comparisons.push_back(*comparison);
    SWITCHYARD_ASSIGN(ExprPtr right, math());
    SWITCHYARD_TRY(adopt(*expr, std::move(right)));
  }
  return expr ? std::move(expr) : std::move(left);
}

Result<ExprPtr> ExpressionParser::math() {
  SWITCHYARD_ASSIGN(ExprPtr left, concat());
  while (is_symbol("+") || is_symbol("-")) {
    const Operator operation = take().text == "+" ? Operator::add : Operator::subtract;
    SWITCHYARD_ASSIGN(ExprPtr right, concat());
    SWITCHYARD_ASSIGN(left, pair(Expr::Kind::binary, operation, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::concat() {
  SWITCHYARD_ASSIGN(ExprPtr left, product());
  if (!is_symbol("~")) return left;
  ExprPtr expr = make(Expr::Kind::concat);
  SWITCHYARD_TRY(adopt(*expr, std::move(left)));
  while (skip_symbol("~")) {
    SWITCHYARD_ASSIGN(ExprPtr right, product());
    SWITCHYARD_TRY(adopt(*expr, std::move(right)));
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::product() {
  SWITCHYARD_ASSIGN(ExprPtr left, power());
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    const std::string symbol = take().text;
    const Operator operation = symbol == "*"    ? Operator::multiply
                               : symbol == "/"  ? Operator::divide
                               : symbol == "//" ? Operator::floor_divide
                                                : Operator::modulo;
    SWITCHYARD_ASSIGN(ExprPtr right, power());
    SWITCHYARD_ASSIGN(left, pair(Expr::Kind::binary, operation, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::power() {
  SWITCHYARD_ASSIGN(ExprPtr left, unary(true));
  while (skip_symbol("**")) {
    SWITCHYARD_ASSIGN(ExprPtr right, unary(true));
    SWITCHYARD_ASSIGN(left,
                      pair(Expr::Kind::binary, Operator::power, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::unary(bool with_filters) {
  const bool minus = is_symbol("-");
  if (!minus && !is_symbol("+")) {
    SWITCHYARD_ASSIGN(ExprPtr expr, primary());
    SWITCHYARD_ASSIGN(expr, postfix(std::move(expr)));
    return with_filters ? filters_and_tests(std::move(expr)) : Result<ExprPtr>(std::move(expr));
  }
  const Nesting nesting(*this);
  if (nesting.too_deep())
    return fail(Code::bad_request, "more than {} signs stand in a row", kMaxNesting);
  ExprPtr expr = make(minus ? Expr::Kind::minus : Expr::Kind::plus);
  take();
  SWITCHYARD_ASSIGN(ExprPtr operand, unary(false));
  SWITCHYARD_TRY(adopt(*expr, std::move(operand)));
  SWITCHYARD_ASSIGN(expr, postfix(std::move(expr)));
  return with_filters ? filters_and_tests(std::move(expr)) : Result<ExprPtr>(std::move(expr));
}

bool ExpressionParser::ends_tuple(bool in_brackets) const {
  const Token::Kind kind = peek().kind;
  if (in_brackets) return is_symbol(")");
  return kind == Token::Kind::print_end || kind == Token::Kind::block_end || is_symbol(")");
}

Result<ExprPtr> ExpressionParser::tuple(bool with_conditional, bool in_brackets) {
  ExprPtr expr = make(Expr::Kind::tuple);
  bool has_comma = false;
  while (!ends_tuple(in_brackets)) {
    auto item = with_conditional ? expression() : either();
    SWITCHYARD_TRY(item);
    SWITCHYARD_TRY(adopt(*expr, *std::move(item)));
    if (!skip_symbol(",")) break;
    has_comma = true;
  }
  if (has_comma) return expr;
  if (!expr->children.empty()) return std::move(expr->children[0]);
  if (in_brackets) return expr;
  return unexpected("an expression");
}

}  // namespace switchyard::text::jinja
