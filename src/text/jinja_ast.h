// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template: expressions and statements, as jinja_parser builds and jinja_interpreter
// walks them. A node says which of its fields its kind uses.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_library.h"
#include "text/jinja_value.h"

namespace switchyard::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Operator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : uint8_t {
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Expr {
  enum class Kind : uint8_t {
    literal,      // constant
    name,         // name
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value, ...
    negation,     // not children[0]
    minus,        // -children[0]
    plus,         // +children[0]
    binary,       // children[0] operation children[1]
    concat,       // children joined by ~
    compare,      // children[0] comparisons[0] children[1] comparisons[1] ...
    both,         // children[0] and children[1]
    either,       // children[0] or children[1]
    conditional,  // children: condition, then, else (may be missing)
    attribute,    // children[0].name
    item,         // children[0][children[1]]
    slice,   // children[0][children[1]:children[2]:children[3]], where any of the three may be null
    call,    // children[0](children[1..], keywords)
    filter,  // children[0]|name(children[1..], keywords); children[0] is null in filter blocks
    test,    // children[0] is name(children[1..], keywords)
  };

  Kind kind;
  int line;
  int depth = 1;  // of the tree below; bounded, because the tree is walked by recursion
  Operator operation{};
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  std::vector<Comparison> comparisons;
  Filter* filter = nullptr;  // null: unknown, an error when it is reached
  Test* test = nullptr;      // likewise
};

struct Statement;
using Body = std::vector<Statement>;

/// What is assigned to: a name, some names, or name.attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  bool unpacks = false;
  std::string attribute;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // null: none
};

/// A macro, or the body of a call block, which is a macro named "caller".
struct MacroNode {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  int line = 1;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  enum class Kind : uint8_t {
    text,       // text
    print,      // expr
    branch,     // branches; the last one without condition is the else
    loop,       // target, expr, condition (may be null), body, otherwise
    set,        // target, expr
    set_block,  // target, expr (filters, may be null), body
    macro,      // macro
    call,       // expr (a call), macro
    filter,     // expr (filters), body
    with,       // targets and values in branches' stead: assignments, body
    scope,      // body (generation)
    stop,       // break
    next,       // continue
  };
  struct Branch {
    ExprPtr condition;  // null: always
    Body body;
  };

  Kind kind;
  int line;
  Text text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
  Body otherwise;
  std::unique_ptr<MacroNode> macro;
};

}  // namespace switchyard::text::jinja
