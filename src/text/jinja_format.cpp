// SPDX-License-Identifier: Apache-2.0
// Implements jinja_format.h.
#include "text/jinja_format.h"

#include <charconv>

#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {
namespace {

/// Appends a value as the conversion wants it.
Status convert(Interpreter& interpreter, char conversion, const Value& value, Text& out) {
  if (value.is_undefined() && conversion != 's') return value.undefined_error();
  if (conversion == 's') return append_str(value, out, interpreter.budget());
  if (conversion == 'r') return append_repr(value, out, interpreter.budget());
  if (conversion != 'd' && conversion != 'i')
    return fail(Code::bad_request, "the format '%{}' is not supported: use %s", conversion);
  if (!value.is_integral())
    return fail(Code::bad_request, "%{} needs an integer, not '{}'", conversion, value.type_name());
  return append_str(Value(value.as_int()), out, interpreter.budget());
}

}  // namespace

Result<Value> format_percent(Interpreter& interpreter, const Text& pattern, const Value& values) {
  if (pattern.is_markup)
    return fail(Code::bad_request, "'%' with a text marked by 'safe' is not supported");
  std::vector<Value> given{values};
  const bool is_tuple =
      values.is_sequence() && values.as_sequence().flavor == Sequence::Flavor::tuple;
  if (is_tuple) given = values.as_sequence().elements;
  const std::string_view view = pattern.view();
  Text out;
  size_t used = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t percent = std::min(view.find('%', at), view.size());
    out.append(pattern, at, percent);
    if (percent == view.size()) break;
    if (percent + 1 == view.size()) return fail(Code::bad_request, "incomplete format '%'");
    const char conversion = view[percent + 1];
    if (conversion == '%') {
      out.append(pattern, percent, percent + 1);
    } else {
      if (used >= given.size())
        return fail(Code::bad_request, "not enough arguments for the format string");
      SWITCHYARD_TRY(convert(interpreter, conversion, given[used++], out));
    }
    SWITCHYARD_TRY(interpreter.check_length(out.size()));
    at = percent + 2;
  }
  // A lone dict or list may be left over, as in Python; other values may not.
  if (used < given.size() && (is_tuple || !(values.is_dict() || values.is_sequence())))
    return fail(Code::bad_request, "not all arguments were used by the format string");
  return interpreter.make_string(std::move(out));
}

namespace {

/// The value that a field such as "", "0" or "name" stands for.
Result<Value> field_value(std::string_view field, const Arguments& arguments, size_t& automatic) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), index);
  const bool is_index = error == std::errc{} && end == field.data() + field.size();
  if (field.empty()) index = automatic++;
  if (field.empty() || is_index) {
    if (index < arguments.positional.size()) return arguments.positional[index];
    return fail(Code::bad_request, "format(): there is no argument {}", index);
  }
  for (const auto& [name, value] : arguments.named)
    if (name == field) return value;
  return fail(Code::bad_request, "format(): the field '{{{}}}' is not supported or not given",
              field);
}

}  // namespace

Result<Value> format_braces(Interpreter& interpreter, const Text& pattern,
                            const Arguments& arguments) {
  if (pattern.is_markup)
    return fail(Code::bad_request, "format() of a text marked by 'safe' is not supported");
  const std::string_view view = pattern.view();
  Text out;
  size_t automatic = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t brace = std::min(view.find_first_of("{}", at), view.size());
    out.append(pattern, at, brace);
    if (brace == view.size()) break;
    if (brace + 1 < view.size() && view[brace + 1] == view[brace]) {
      out.append(pattern, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t end = view.find('}', brace);
    if (view[brace] == '}' || end == std::string_view::npos)
      return fail(Code::bad_request, "format(): a single brace stands in the string");
    SWITCHYARD_ASSIGN(const Value value,
                      field_value(view.substr(brace + 1, end - brace - 1), arguments, automatic));
    SWITCHYARD_TRY(append_str(value, out, interpreter.budget()));
    SWITCHYARD_TRY(interpreter.check_length(out.size()));
    at = end + 1;
  }
  return interpreter.make_string(std::move(out));
}

}  // namespace switchyard::text::jinja
