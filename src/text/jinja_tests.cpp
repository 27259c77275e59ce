// SPDX-License-Identifier: Apache-2.0
// Tests: what stands behind "is".
#include "text/jinja_interpreter.h"
#include "text/jinja_string_tools.h"

namespace switchyard::text::jinja {
namespace {

using Kind = Value::Kind;

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_boolean(const Value& v) { return v.kind() == Kind::boolean; }
bool is_true(const Value& v) { return is_boolean(v) && v.as_bool(); }
bool is_false(const Value& v) { return is_boolean(v) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.kind() == Kind::integer; }
bool is_float(const Value& v) { return v.kind() == Kind::real; }
bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict();
}
bool is_sequence(const Value& v) {
  return is_iterable(v) && (!v.is_sequence() || v.as_sequence().has_items());
}
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is_object() && v.as_object()->is_callable());
}

template <bool (*kHolds)(const Value&)>
Result<bool> simple(Interpreter&, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  return kHolds(input);
}

/// The one argument that comparisons take.
Result<Value> other(const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"other"}));
  if (!bound[0]) return fail(Code::bad_request, "the test needs an argument");
  return *bound[0];
}

template <bool kEqual>
Result<bool> equals(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Value value, other(arguments));
  SWITCHYARD_ASSIGN(const bool same, equal(input, value, interpreter.budget()));
  return same == kEqual;
}

/// input < value, or with kSwap value < input; equal ones count when kOrEqual.
template <bool kSwap, bool kOrEqual>
Result<bool> ordered(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Value value, other(arguments));
  const Value& low = kSwap ? value : input;
  const Value& high = kSwap ? input : value;
  SWITCHYARD_ASSIGN(const bool below, less(low, high, interpreter.budget()));
  if (below || !kOrEqual) return below;
  return equal(low, high, interpreter.budget());
}

Result<bool> in(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Value container, other(arguments));
  return interpreter.contains(container, input);
}

/// Identity, which for scalars is equality of one kind. Whether two equal lists are one is not told.
Result<bool> same_as(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Value value, other(arguments));
  if (input.is_sequence() || input.is_dict() || value.is_sequence() || value.is_dict())
    return fail(Code::bad_request, "sameas of lists and dicts is not supported");
  if (input.kind() != value.kind()) return false;
  return equal(input, value, interpreter.budget());
}

Result<bool> divides(Interpreter& interpreter, const Value& input, const Value& divisor) {
  SWITCHYARD_ASSIGN(const Value rest, interpreter.binary(Operator::modulo, input, divisor));
  return rest.is_number() && !rest.truth();
}

Result<bool> divisible_by(Interpreter& interpreter, const Value& input,
                          const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Value divisor, other(arguments));
  return divides(interpreter, input, divisor);
}

template <bool kEven>
Result<bool> even(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  if (!input.is_number() && !input.is_undefined())
    return fail(Code::bad_request, "odd and even need a number, not '{}'", input.type_name());
  SWITCHYARD_ASSIGN(const bool divided, divides(interpreter, input, Value(int64_t{2})));
  return divided == kEven;
}

template <bool kUpper>
Result<bool> has_case(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(const Text text, interpreter.to_text(input));
  return has_only_case(text.view(), kUpper);
}

constexpr Named<Test> kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"iterable", simple<is_iterable>},
    {"sequence", simple<is_sequence>},
    {"number", simple<is_number>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"callable", simple<is_callable>},
    {"equalto", equals<true>},
    {"eq", equals<true>},
    {"==", equals<true>},
    {"ne", equals<false>},
    {"!=", equals<false>},
    {"lt", ordered<false, false>},
    {"lessthan", ordered<false, false>},
    {"<", ordered<false, false>},
    {"le", ordered<false, true>},
    {"<=", ordered<false, true>},
    {"gt", ordered<true, false>},
    {"greaterthan", ordered<true, false>},
    {">", ordered<true, false>},
    {"ge", ordered<true, true>},
    {">=", ordered<true, true>},
    {"in", in},
    {"sameas", same_as},
    {"divisibleby", divisible_by},
    {"even", even<true>},
    {"odd", even<false>},
    {"lower", has_case<false>},
    {"upper", has_case<true>},
};

}  // namespace

Test* find_test(std::string_view name) { return find_named(kTests, name); }

}  // namespace switchyard::text::jinja
