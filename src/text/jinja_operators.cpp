// SPDX-License-Identifier: Apache-2.0
// Operators between two values: + - * / // % **. Integers that leave int64 are an error, never a wrong number.
#include <cmath>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

std::string_view symbol(Operator operation) { return kSymbols[static_cast<size_t>(operation)]; }

Error overflow(Operator operation) {
  return fail(Code::bad_request, "the result of '{}' does not fit into 64 bits", symbol(operation));
}

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail(Code::bad_request, "0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
      return overflow(Operator::power);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return overflow(Operator::power);
  }
  return Value(result);
}

Result<Value> whole(Operator operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
    case Operator::add:
      return __builtin_add_overflow(a, b, &result) ? overflow(operation)
                                                   : Result<Value>(Value(result));
    case Operator::subtract:
      return __builtin_sub_overflow(a, b, &result) ? overflow(operation)
                                                   : Result<Value>(Value(result));
    case Operator::multiply:
      return __builtin_mul_overflow(a, b, &result) ? overflow(operation)
                                                   : Result<Value>(Value(result));
    case Operator::power:
      return power(a, b);
    default:
      break;
  }
  if (b == 0) return fail(Code::bad_request, "division by zero");
  if (operation == Operator::divide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1)
    return operation == Operator::modulo ? Value(int64_t{0}) : whole(Operator::subtract, 0, a);
  // Python rounds towards minus infinity; the remainder has the sign of the divisor.
  const int64_t remainder = a % b;
  const bool adjusts = remainder != 0 && (remainder < 0) != (b < 0);
  if (operation == Operator::modulo) return Value(adjusts ? remainder + b : remainder);
  return Value(a / b - (adjusts ? 1 : 0));
}

/// divmod() of floats as Python computes it.
std::pair<double, double> floor_and_rest(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double floor = std::floor(quotient);
  return {quotient - floor > 0.5 ? floor + 1 : floor, rest};
}

Result<Value> real(Operator operation, double a, double b) {
  switch (operation) {
    case Operator::add:
      return Value(a + b);
    case Operator::subtract:
      return Value(a - b);
    case Operator::multiply:
      return Value(a * b);
    case Operator::power: {
      const double result = std::pow(a, b);
      if (std::isfinite(result) || !std::isfinite(a) || !std::isfinite(b)) return Value(result);
      return fail(Code::bad_request, "the result of '**' is no real number, or too large");
    }
    default:
      break;
  }
  if (b == 0) return fail(Code::bad_request, "division by zero");
  if (operation == Operator::divide) return Value(a / b);
  const auto [floor, rest] = floor_and_rest(a, b);
  return Value(operation == Operator::modulo ? rest : floor);
}

Error wrong_types(Operator operation, const Value& left, const Value& right) {
  if (left.is_undefined()) return left.undefined_error();
  if (right.is_undefined()) return right.undefined_error();
  return fail(Code::bad_request, "unsupported operand types for {}: '{}' and '{}'",
              symbol(operation), left.type_name(), right.type_name());
}

}  // namespace

Result<Value> Interpreter::binary(Operator operation, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral())
    return whole(operation, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number())
    return real(operation, left.as_real(), right.as_real());
  if (operation == Operator::add) return add(left, right);
  if (operation == Operator::multiply) return multiply(left, right);
  if (operation == Operator::modulo && left.is_string()) {
    if (right.is_undefined()) return right.undefined_error();
    return format_percent(*this, left.as_text(), right);
  }
  return wrong_types(operation, left, right);
}

Result<Value> Interpreter::add(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    if (left.as_text().is_markup || right.as_text().is_markup)
      return fail(Code::bad_request, "'+' with a text marked by 'safe' is not supported: use '~'");
    SWITCHYARD_TRY(check_length(left.view().size() + right.view().size()));
    Text text = left.as_text();
    text.append(right.as_text());
    return make_string(std::move(text));
  }
  if (left.is_sequence() && right.is_sequence()) {
    const Sequence& a = left.as_sequence();
    const Sequence& b = right.as_sequence();
    if (a.flavor == b.flavor && a.flavor <= Sequence::Flavor::tuple) {
      SWITCHYARD_TRY(budget_.charge(a.elements.size() + b.elements.size()));
      Sequence sum;
      sum.flavor = a.flavor;
      sum.elements = a.elements;
      sum.elements.insert(sum.elements.end(), b.elements.begin(), b.elements.end());
      return Value::sequence(std::move(sum));
    }
  }
  return wrong_types(Operator::add, left, right);
}

Result<Value> Interpreter::multiply(const Value& left, const Value& right) {
  if (right.is_integral() && (left.is_string() || left.is_sequence()))
    return repeat(left, right.as_int());
  if (left.is_integral() && (right.is_string() || right.is_sequence()))
    return repeat(right, left.as_int());
  return wrong_types(Operator::multiply, left, right);
}

Result<Value> Interpreter::repeat(const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is_string()) {
    const Text& text = value.as_text();
    if (!text.empty() && count > limits_.output_bytes / text.size())
      return check_length(limits_.output_bytes + 1).error();
    SWITCHYARD_TRY(budget_.charge(count));
    Text repeated;
    for (size_t i = 0; i < count && !text.empty(); ++i) repeated.append(text);
    return make_string(std::move(repeated));
  }
  const Sequence& sequence = value.as_sequence();
  if (sequence.flavor > Sequence::Flavor::tuple)
    return wrong_types(Operator::multiply, value, Value(times));
  const size_t size = sequence.elements.size();
  if (size != 0 && count > static_cast<size_t>(limits_.range) / size)
    return fail(Code::bad_request, "a list becomes longer than {} elements", limits_.range);
  SWITCHYARD_TRY(budget_.charge(size * count));
  Sequence repeated;
  repeated.flavor = sequence.flavor;
  for (size_t i = 0; i < count && size != 0; ++i)
    repeated.elements.insert(repeated.elements.end(), sequence.elements.begin(),
                             sequence.elements.end());
  return Value::sequence(std::move(repeated));
}

}  // namespace switchyard::text::jinja
