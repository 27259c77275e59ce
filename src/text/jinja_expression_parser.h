// SPDX-License-Identifier: Apache-2.0
// ExpressionParser: the grammar of expressions, from "if" (binds least) down to names and literals.
//
//   conditional  a if b else c          math    + -     product  * / // %
//   either both  or, and                concat  ~       power    **
//   negation     not                    unary   - +     postfix  .x [x] (x)  |filter  is test
//   compare      == != < in ...         primary names, literals, brackets
//
// The order of + over ~ and of unary minus over ** is that of the reference, not of Python.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace switchyard::text::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<ExprPtr> expression();
  /// An expression without "if" at its top: "for x in xs if y" has another use for the word.
  Result<ExprPtr> either();
  /// Expressions with commas between them are a tuple. `end_word` may follow a comma, too.
  Result<ExprPtr> tuple(bool with_conditional, bool in_brackets);
  /// "name(arguments)" and then "|name(arguments)"...; `input` may be null.
  Result<ExprPtr> filter_chain(ExprPtr input, bool first_has_bar);

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool is_symbol(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::symbol && peek(ahead).text == text;
  }
  bool is_word(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::name && peek(ahead).text == text;
  }
  bool skip_symbol(std::string_view text);
  bool skip_word(std::string_view text);
  Status expect_symbol(std::string_view text);
  Status expect(Token::Kind kind);
  Result<std::string> expect_name();
  Error unexpected(std::string_view expected) const;

  /// What macros must know of their bodies.
  struct Uses {
    bool varargs = false, kwargs = false, caller = false;
  };
  Uses uses_;
  int conditional_depth_ = 0;  // inside how many "if"

 private:
  friend class Nesting;

  Result<ExprPtr> both();
  Result<ExprPtr> negation();
  Result<ExprPtr> compare();
  Result<ExprPtr> math();
  Result<ExprPtr> concat();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary(bool with_filters);
  Result<ExprPtr> primary();
  Result<ExprPtr> name_or_constant();
  Result<ExprPtr> number();
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr expr);
  Result<ExprPtr> filters_and_tests(ExprPtr expr);
  Result<ExprPtr> attribute(ExprPtr expr);
  Result<ExprPtr> subscript(ExprPtr expr);
  Result<ExprPtr> call(ExprPtr expr);
  Result<ExprPtr> filter(ExprPtr input);
  Result<ExprPtr> test(ExprPtr input);
  Status arguments(Expr& call);
  bool starts_test_argument() const;
  bool ends_tuple(bool in_brackets) const;

  ExprPtr make(Expr::Kind kind) const;
  /// Adds a child; fails when the tree becomes too deep.
  Status adopt(Expr& parent, ExprPtr child) const;
  Result<ExprPtr> pair(Expr::Kind kind, Operator operation, ExprPtr left, ExprPtr right) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace switchyard::text::jinja
