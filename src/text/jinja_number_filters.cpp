// SPDX-License-Identifier: Apache-2.0
// Filters on numbers: int, float, abs, round, sum.
#include <charconv>
#include <cmath>

#include "text/jinja_attribute_path.h"
#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {
namespace {

/// Digits without the underscores that Python allows between two of them; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() ||
               !std::isxdigit(static_cast<unsigned char>(text[i - 1])) ||
               !std::isxdigit(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  return digits;
}

/// int(text, base). Nothing when it is no integer; an error when it is too large.
Result<std::optional<int64_t>> parse_int(const Text& text, int64_t base) {
  using Parsed = std::optional<int64_t>;
  if (base != 2 && base != 8 && base != 10 && base != 16)
    return fail(Code::bad_request, "int: the base {} is not supported", base);
  const Text bare = strip(text, nullptr, true, true);
  std::string_view view = bare.view();
  const bool minus = view.starts_with('-');
  if (minus || view.starts_with('+')) view.remove_prefix(1);
  if (base != 10 && view.size() > 2 && view[0] == '0') {
    const char mark = static_cast<char>(view[1] | 0x20);
    if (mark == (base == 16 ? 'x' : base == 8 ? 'o' : 'b')) view.remove_prefix(2);
  }
  const auto digits = without_underscores(view);
  if (!digits || digits->empty() || digits->starts_with('-')) return Parsed();
  const std::string signed_digits = (minus ? "-" : "") + *digits;
  int64_t value = 0;
  const char* last = signed_digits.data() + signed_digits.size();
  const auto [end, error] =
      std::from_chars(signed_digits.data(), last, value, static_cast<int>(base));
  if (end != last || error == std::errc::invalid_argument) return Parsed();
  if (error == std::errc::result_out_of_range)
    return fail(Code::bad_request, "int: '{}' does not fit into 64 bits", view);
  return Parsed(value);
}

/// float(text); nothing when it is no number.
std::optional<double> parse_real(const Text& text) {
  const Text bare = strip(text, nullptr, true, true);
  std::string_view view = bare.view();
  if (view.starts_with('+')) view.remove_prefix(1);
  const auto digits = without_underscores(view);
  if (!digits || digits->starts_with("+")) return std::nullopt;
  double value = 0;
  const char* last = digits->data() + digits->size();
  const auto [end, error] = std::from_chars(digits->data(), last, value);
  if (end != last || error == std::errc::invalid_argument) return std::nullopt;
  if (digits->find('(') != std::string::npos) return std::nullopt;  // nan(...) of C
  if (error == std::errc::result_out_of_range)
    return digits->find("e-") != std::string::npos || digits->find("E-") != std::string::npos
               ? 0.0
               : (digits->starts_with('-') ? -HUGE_VAL : HUGE_VAL);
  return value;
}

Result<Value> truncate(double real, const Value& fallback) {
  if (!std::isfinite(real)) return fallback;
  if (std::fabs(real) >= 9223372036854775808.0)
    return fail(Code::bad_request, "int: {} does not fit into 64 bits", real);
  return Value(static_cast<int64_t>(real));
}

Result<Value> to_int(Interpreter&, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"default", "base"}));
  const Value fallback = bound[0] ? *bound[0] : Value(int64_t{0});
  if (input.is_undefined()) return input.undefined_error();
  if (input.is_integral()) return Value(input.as_int());
  if (input.kind() == Value::Kind::real) return truncate(input.as_real(), fallback);
  if (!input.is_string()) return fallback;
  SWITCHYARD_ASSIGN(const int64_t base, int_argument(bound, 1, 10));
  SWITCHYARD_ASSIGN(const auto integer, parse_int(input.as_text(), base));
  if (integer) return Value(*integer);
  const auto real = parse_real(input.as_text());
  return real ? truncate(*real, fallback) : fallback;
}

Result<Value> to_float(Interpreter&, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"default"}));
  if (input.is_undefined()) return input.undefined_error();
  if (input.is_number()) return Value(input.as_real());
  if (input.is_string()) {
    if (const auto real = parse_real(input.as_text())) return Value(*real);
  }
  return bound[0] ? *bound[0] : Value(0.0);
}

Error needs_number(std::string_view filter, const Value& input) {
  if (input.is_undefined()) return input.undefined_error();
  return fail(Code::bad_request, "{} needs a number, not '{}'", filter, input.type_name());
}

Result<Value> absolute(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  if (!input.is_number()) return needs_number("abs", input);
  if (!input.is_integral()) return Value(std::fabs(input.as_real()));
  if (input.as_int() >= 0) return Value(input.as_int());
  return interpreter.binary(Operator::subtract, Value(int64_t{0}), input);
}

Result<Value> round(Interpreter&, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"precision", "method"}));
  SWITCHYARD_ASSIGN(const int64_t precision, int_argument(bound, 0, 0));
  Text method("common", true);
  if (bound[1]) {
    SWITCHYARD_ASSIGN(method, text_argument(bound, 1));
  }
  if (!input.is_number()) return needs_number("round", input);
  if (precision < 0 || precision > 15)
    return fail(Code::bad_request, "round: a precision of {} is not supported", precision);
  if (method.view() == "common") {
    if (input.is_integral()) return Value(input.as_int());
    if (!std::isfinite(input.as_real())) return input;
    // Printing rounds the exact value, halves to even, as Python does.
    const std::string digits = fmt::format("{:.{}f}", input.as_real(), precision);
    double rounded = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
    return Value(rounded);
  }
  const bool up = method.view() == "ceil";
  if (!up && method.view() != "floor")
    return fail(Code::bad_request, "round: the method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_real() * scale;
  return Value((up ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"attribute", "start"}));
  SWITCHYARD_ASSIGN(auto elements, interpreter.iterate(input));
  Value total = bound[1] ? *bound[1] : Value(int64_t{0});
  if (total.is_string()) return fail(Code::bad_request, "sum cannot add strings: use join");
  std::optional<AttributePath> path;
  if (bound[0] && !bound[0]->is_none()) {
    SWITCHYARD_ASSIGN(path, AttributePath::read(*bound[0]));
  }
  for (Value& element : elements) {
    if (path) {
      SWITCHYARD_ASSIGN(element, path->get(interpreter, element, nullptr));
    }
    SWITCHYARD_ASSIGN(total, interpreter.binary(Operator::add, total, element));
  }
  return total;
}

constexpr Named<Filter> kFilters[] = {
    {"int", to_int}, {"float", to_float}, {"abs", absolute}, {"round", round}, {"sum", sum},
};

}  // namespace

Filter* find_number_filter(std::string_view name) { return find_named(kFilters, name); }

}  // namespace switchyard::text::jinja
