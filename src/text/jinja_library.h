// SPDX-License-Identifier: Apache-2.0
// The library of templates: filters, tests, methods and global functions by name.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja_value.h"

namespace switchyard::text::jinja {

class Interpreter;

/// What a call gives: f(1, 2, a=3).
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments by the number of their parameter; nothing where none was given.
using Bound = std::vector<std::optional<Value>>;

/// Sorts arguments to the parameters of that name, in order.
/// Errors: Code::bad_request for too many and for unknown or doubled names.
Result<Bound> bind(const Arguments& arguments, std::initializer_list<std::string_view> names);
/// The parameter `index` must be given, and be of that kind.
Result<Text> text_argument(const Bound& bound, size_t index);
Result<int64_t> int_argument(const Bound& bound, size_t index, std::optional<int64_t> fallback);
bool flag_argument(const Bound& bound, size_t index, bool fallback);

using Filter = Result<Value>(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments);
using Test = Result<bool>(Interpreter& interpreter, const Value& input, const Arguments& arguments);
using Method = Result<Value>(Interpreter& interpreter, const Value& self,
                             const Arguments& arguments);
using Function = Result<Value>(Interpreter& interpreter, const Arguments& arguments);

/// Null for names that do not exist.
Filter* find_filter(std::string_view name);
Test* find_test(std::string_view name);
Function* find_function(std::string_view name);
Method* find_method(const Value& self, std::string_view name);

/// Names that Python knows for this kind of value and this library does not.
enum class Refusal : uint8_t { none, unsafe, unsupported };
Refusal find_refusal(const Value& self, std::string_view name);

template <class F>
struct Named {
  std::string_view name;
  F* function;
};
template <class F, size_t N>
F* find_named(const Named<F> (&table)[N], std::string_view name) {
  for (const Named<F>& entry : table)
    if (entry.name == name) return entry.function;
  return nullptr;
}

// The parts of the library; the functions above ask each in turn.
Filter* find_text_filter(std::string_view name);
Filter* find_sequence_filter(std::string_view name);
Filter* find_order_filter(std::string_view name);
Filter* find_number_filter(std::string_view name);
Method* find_string_method(std::string_view name);
Method* find_split_method(std::string_view name);
/// Of dicts, lists, tuples and loops.
Method* find_container_method(const Value& self, std::string_view name);

}  // namespace switchyard::text::jinja
