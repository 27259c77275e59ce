// SPDX-License-Identifier: Apache-2.0
// Implements jinja_attribute_path.h.
#include "text/jinja_attribute_path.h"

#include <charconv>

#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {

Result<AttributePath> AttributePath::read(const Value& attribute) {
  AttributePath path;
  if (attribute.is_integral()) {
    path.steps_.push_back(attribute);
    return path;
  }
  if (!attribute.is_string())
    return fail(Code::bad_request, "an attribute must be a string or a number, not '{}'",
                attribute.type_name());
  std::string_view rest = attribute.view();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view step = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
    const bool is_index =
        error == std::errc{} && end == step.data() + step.size() && step[0] != '-';
    path.steps_.push_back(is_index ? Value(index) : Value::string(step, true));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

Result<Value> AttributePath::get(Interpreter& interpreter, const Value& value,
                                 const Value* missing) const {
  Value found = value;
  for (const Value& step : steps_) {
    SWITCHYARD_TRY(interpreter.budget().charge(1));
    SWITCHYARD_ASSIGN(found, interpreter.item(found, step));
    if (missing && found.is_undefined()) found = *missing;
  }
  return found;
}

}  // namespace switchyard::text::jinja
