// SPDX-License-Identifier: Apache-2.0
// Implements jinja_parser.h: statements.
#include "text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja_expression_parser.h"

namespace switchyard::text::jinja {
namespace {

constexpr int kMaxBlocks = 40;  // blocks in blocks

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Body> run() {
    SWITCHYARD_ASSIGN(Body body, block({}));
    if (peek().kind != Token::Kind::end) return unexpected("the end of the template");
    return body;
  }
  int line() const { return peek().line; }

 private:
  using Words = std::initializer_list<std::string_view>;

  Statement make(Statement::Kind kind) const {
    Statement statement{};
    statement.kind = kind;
    statement.line = peek().line;
    return statement;
  }

  /// Statements up to a tag whose word is in `ends`; that tag's "{%" is taken, its word is not.
  Result<Body> block(Words ends) {
    Body body;
    while (peek().kind != Token::Kind::end) {
      if (peek().kind == Token::Kind::text) {
        Statement statement = make(Statement::Kind::text);
        statement.text = Text(take().text, true);
        body.push_back(std::move(statement));
      } else if (peek().kind == Token::Kind::print_begin) {
        SWITCHYARD_ASSIGN(Statement statement, print());
        body.push_back(std::move(statement));
      } else {
        take();  // "{%": the lexer gives nothing else here
        const std::string word = peek().text;
        if (std::find(ends.begin(), ends.end(), word) != ends.end()) return body;
        SWITCHYARD_ASSIGN(Statement statement, tag(word));
        SWITCHYARD_TRY(expect(Token::Kind::block_end));
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() == 0) return body;
    return fail(Code::bad_request, "unexpected end of the template: expected '{}'",
                *(ends.end() - 1));
  }

  /// block() behind the "%}" that starts it, with its depth counted.
  Result<Body> inner_block(Words ends) {
    SWITCHYARD_TRY(expect(Token::Kind::block_end));
    if (++blocks_ > kMaxBlocks)
      return fail(Code::bad_request, "blocks lie more than {} levels in one another", kMaxBlocks);
    auto body = block(ends);
    --blocks_;
    return body;
  }

  /// A block that ends with that word, which is taken, and in which no "break" reaches a loop outside.
  Result<Body> closed_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    auto body = inner_block({end});
    loops_ = loops;
    if (body.ok()) take();
    return body;
  }

  Result<Statement> print() {
    Statement statement = make(Statement::Kind::print);
    take();
    SWITCHYARD_ASSIGN(statement.expr, tuple(true, false));
    SWITCHYARD_TRY(expect(Token::Kind::print_end));
    return statement;
  }

  Result<Statement> tag(const std::string& word) {
    if (peek().kind != Token::Kind::name) return unexpected("the name of a tag");
    if (word == "if") return branch();
    if (word == "for") return loop();
    if (word == "set") return set();
    if (word == "macro") return macro();
    if (word == "call") return call();
    if (word == "filter") return filter();
    if (word == "with") return with();
    if (word == "generation") return generation();
    if (word == "break" || word == "continue") return jump(word == "break");
    return fail(Code::bad_request, "there is no tag named '{}'", word);
  }

  Result<Statement> branch() {
    Statement statement = make(Statement::Kind::branch);
    ++conditional_depth_;
    while (true) {
      take();  // if, elif
      Statement::Branch part;
      SWITCHYARD_ASSIGN(part.condition, tuple(false, false));
      SWITCHYARD_ASSIGN(part.body, inner_block({"elif", "else", "endif"}));
      statement.branches.push_back(std::move(part));
      if (!is_word("elif")) break;
    }
    if (skip_word("else")) {
      Statement::Branch part;
      SWITCHYARD_ASSIGN(part.body, inner_block({"endif"}));
      statement.branches.push_back(std::move(part));
    }
    take();  // endif
    --conditional_depth_;
    return statement;
  }

  Result<Statement> loop() {
    Statement statement = make(Statement::Kind::loop);
    take();
    SWITCHYARD_ASSIGN(statement.target, target(false));
    for (const std::string& name : statement.target.names)
      if (name == "loop") return fail(Code::bad_request, "a loop cannot assign to 'loop'");
    if (!skip_word("in")) return unexpected("'in'");
    SWITCHYARD_ASSIGN(statement.expr, tuple(false, false));
    if (skip_word("if")) {
      SWITCHYARD_ASSIGN(statement.condition, expression());
    }
    if (is_word("recursive")) return fail(Code::bad_request, "recursive loops are not supported");
    ++loops_;
    auto body = inner_block({"else", "endfor"});
    --loops_;
    SWITCHYARD_ASSIGN(statement.body, std::move(body));
    if (skip_word("else")) {
      SWITCHYARD_ASSIGN(statement.otherwise, inner_block({"endfor"}));
    }
    take();
    return statement;
  }

  Result<Statement> set() {
    Statement statement = make(Statement::Kind::set);
    take();
    SWITCHYARD_ASSIGN(statement.target, target(true));
    if (skip_symbol("=")) {
      SWITCHYARD_ASSIGN(statement.expr, tuple(true, false));
      return statement;
    }
    statement.kind = Statement::Kind::set_block;
    if (statement.target.unpacks) return unexpected("'='");
    if (peek().kind != Token::Kind::block_end) {
      SWITCHYARD_ASSIGN(statement.expr, filter_chain(nullptr, true));
    }
    SWITCHYARD_ASSIGN(statement.body, closed_block("endset"));
    return statement;
  }

  Result<Statement> macro() {
    Statement statement = make(Statement::Kind::macro);
    take();
    SWITCHYARD_ASSIGN(std::string name, target_name());
    SWITCHYARD_TRY(macro_body(statement, std::move(name), "endmacro"));
    return statement;
  }

  Result<Statement> call() {
    Statement statement = make(Statement::Kind::call);
    take();
    auto node = std::make_unique<MacroNode>();
    if (is_symbol("(")) SWITCHYARD_TRY(parameters(*node));
    SWITCHYARD_ASSIGN(statement.expr, expression());
    if (statement.expr->kind != Expr::Kind::call)
      return fail(Code::bad_request, "a block 'call' needs a call of a macro");
    statement.macro = std::move(node);
    SWITCHYARD_TRY(macro_rest(statement, "caller", "endcall"));
    return statement;
  }

  Status macro_body(Statement& statement, std::string name, std::string_view end) {
    statement.macro = std::make_unique<MacroNode>();
    SWITCHYARD_TRY(parameters(*statement.macro));
    return macro_rest(statement, std::move(name), end);
  }

  Status macro_rest(Statement& statement, std::string name, std::string_view end) {
    MacroNode& node = *statement.macro;
    node.name = std::move(name);
    node.line = statement.line;
    const Uses outer = std::exchange(uses_, Uses{});
    SWITCHYARD_ASSIGN(node.body, closed_block(end));
    node.uses_varargs = uses_.varargs;
    node.uses_kwargs = uses_.kwargs;
    node.uses_caller = uses_.caller;
    uses_ = outer;
    return {};
  }

  Status parameters(MacroNode& node) {
    SWITCHYARD_TRY(expect_symbol("("));
    while (!is_symbol(")")) {
      Parameter parameter;
      SWITCHYARD_ASSIGN(parameter.name, target_name());
      for (const Parameter& other : node.parameters)
        if (other.name == parameter.name)
          return fail(Code::bad_request, "the parameter '{}' appears twice", parameter.name);
      if (skip_symbol("=")) {
        SWITCHYARD_ASSIGN(parameter.fallback, expression());
      } else if (!node.parameters.empty() && node.parameters.back().fallback) {
        return fail(Code::bad_request,
                    "the parameter '{}' without default follows one with a default",
                    parameter.name);
      }
      node.parameters.push_back(std::move(parameter));
      if (!skip_symbol(",")) break;
    }
    return expect_symbol(")");
  }

  Result<Statement> filter() {
    Statement statement = make(Statement::Kind::filter);
    take();
    SWITCHYARD_ASSIGN(statement.expr, filter_chain(nullptr, false));
    SWITCHYARD_ASSIGN(statement.body, closed_block("endfilter"));
    return statement;
  }

  Result<Statement> with() {
    Statement statement = make(Statement::Kind::with);
    take();
    while (peek().kind != Token::Kind::block_end) {
      if (!statement.assignments.empty()) SWITCHYARD_TRY(expect_symbol(","));
      SWITCHYARD_ASSIGN(Target name, single_target());
      SWITCHYARD_TRY(expect_symbol("="));
      SWITCHYARD_ASSIGN(ExprPtr value, expression());
      statement.assignments.emplace_back(std::move(name), std::move(value));
    }
    SWITCHYARD_ASSIGN(statement.body, inner_block({"endwith"}));
    take();
    return statement;
  }

  Result<Statement> generation() {
    Statement statement = make(Statement::Kind::scope);
    take();
    SWITCHYARD_ASSIGN(statement.body, closed_block("endgeneration"));
    return statement;
  }

  Result<Statement> jump(bool stop) {
    Statement statement = make(stop ? Statement::Kind::stop : Statement::Kind::next);
    const std::string word = take().text;
    if (loops_ == 0) return fail(Code::bad_request, "'{}' stands outside of a loop", word);
    return statement;
  }

  /// A name that may be assigned to.
  Result<std::string> target_name() {
    constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
    constexpr std::string_view kWords[] = {"and", "or", "not", "in", "is", "if", "else"};
    SWITCHYARD_ASSIGN(std::string name, expect_name());
    for (const std::string_view constant : kConstants)
      if (name == constant) return fail(Code::bad_request, "cannot assign to '{}'", name);
    for (const std::string_view word : kWords)
      if (name == word) return fail(Code::bad_request, "cannot assign to '{}'", name);
    return name;
  }

  Result<Target> single_target() {
    Target single;
    SWITCHYARD_ASSIGN(std::string name, target_name());
    single.names.push_back(std::move(name));
    return single;
  }

  /// name, or name.attribute where `with_attribute`, or names with commas, perhaps in brackets.
  Result<Target> target(bool with_attribute) {
    const bool brackets = skip_symbol("(");
    SWITCHYARD_ASSIGN(Target made, single_target());
    if (with_attribute && !brackets && skip_symbol(".")) {
      SWITCHYARD_ASSIGN(made.attribute, expect_name());
      return made;
    }
    while (skip_symbol(",")) {
      made.unpacks = true;
      if (peek().kind != Token::Kind::name || is_word("in")) break;
      SWITCHYARD_ASSIGN(std::string name, target_name());
      made.names.push_back(std::move(name));
    }
    if (brackets) SWITCHYARD_TRY(expect_symbol(")"));
    return made;
  }

  int loops_ = 0;
  int blocks_ = 0;
};

}  // namespace

Result<Body> parse(std::string_view source) {
  SWITCHYARD_ASSIGN(std::vector<Token> tokens, tokenize(source));
  Parser parser(std::move(tokens));
  auto body = parser.run();
  if (!body.ok()) return with_context(body.error(), fmt::format("line {}", parser.line()));
  return body;
}

}  // namespace switchyard::text::jinja
