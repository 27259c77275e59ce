// SPDX-License-Identifier: Apache-2.0
// Filters on text: case, white space, replacing, JSON.
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_string_tools.h"

namespace switchyard::text::jinja {
namespace {

template <Text (*kChange)(const Text&)>
Result<Value> change_case(Interpreter& interpreter, const Value& input,
                          const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(const Text text, interpreter.to_text(input));
  return interpreter.make_string(kChange(text));
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"chars"}));
  SWITCHYARD_ASSIGN(const Text text, interpreter.to_text(input));
  if (!bound[0] || bound[0]->is_none()) return Value(strip(text, nullptr, true, true));
  SWITCHYARD_ASSIGN(const Text characters, text_argument(bound, 0));
  const std::string_view view = characters.view();
  return Value(strip(text, &view, true, true));
}

Result<Value> replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"old", "new", "count"}));
  if (!bound[0] || !bound[1]) return fail(Code::bad_request, "replace needs two arguments");
  SWITCHYARD_ASSIGN(const Text text, interpreter.to_text(input));
  SWITCHYARD_ASSIGN(const Text old, interpreter.to_text(*bound[0]));
  SWITCHYARD_ASSIGN(const Text with, interpreter.to_text(*bound[1]));
  int64_t count = -1;
  if (bound[2] && !bound[2]->is_none()) {
    SWITCHYARD_ASSIGN(count, int_argument(bound, 2, -1));
  }
  return replace_text(interpreter, text, old, with, count);
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"width", "first", "blank"}));
  if (input.is_undefined()) return input.undefined_error();
  if (!input.is_string())
    return fail(Code::bad_request, "indent needs a string, not '{}'", input.type_name());
  Text by;
  if (bound[0] && bound[0]->is_string()) {
    by = bound[0]->as_text();
  } else {
    SWITCHYARD_ASSIGN(const int64_t width, int_argument(bound, 0, 4));
    SWITCHYARD_TRY(interpreter.check_length(static_cast<size_t>(std::max<int64_t>(width, 0))));
    by = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  }
  const bool blank = flag_argument(bound, 2, false);
  Text ended = input.as_text();
  ended.append("\n", true);
  Text out;
  if (flag_argument(bound, 1, false)) out.append(by);
  bool first = true;
  for (const Text& line : split_lines(ended, false)) {
    if (!std::exchange(first, false)) {
      out.append("\n", true);
      if (blank || !line.empty()) out.append(by);
    }
    out.append(line);
    SWITCHYARD_TRY(interpreter.budget().charge_text(by.size() + line.size()));
    SWITCHYARD_TRY(interpreter.check_length(out.size()));
  }
  return Value(std::move(out));
}

Result<Value> string(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(Text text, interpreter.to_text(input));
  text.is_markup = input.is_string() && input.as_text().is_markup;
  return Value(std::move(text));
}

Result<Value> safe(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(Text text, interpreter.to_text(input));
  text.is_markup = true;
  return Value(std::move(text));
}

std::string_view html_escape(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&#34;";
    case '\'':
      return "&#39;";
    default:
      return "";
  }
}

Result<Value> escape(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  if (input.is_string() && input.as_text().is_markup) return input;
  SWITCHYARD_ASSIGN(const Text text, interpreter.to_text(input));
  Text out;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view escaped = html_escape(text.view()[at]);
    if (escaped.empty())
      out.append(text, at, at + 1);
    else
      out.append(escaped, text.trusted_at(at));
  }
  out.is_markup = true;
  return interpreter.make_string(std::move(out));
}

Result<Value> format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty())
    return fail(Code::bad_request, "format with named arguments is not supported");
  SWITCHYARD_ASSIGN(const Text text, interpreter.to_text(input));
  return format_percent(interpreter, text, Value::tuple(arguments.positional));
}

/// separators=(item, key), and the indent: a number of blanks, or a string.
Status read_json_layout(const Bound& bound, JsonStyle& style) {
  style.indented = bound[1] && !bound[1]->is_none();
  if (style.indented) {
    style.item_separator = Text(",", true);
    if (bound[1]->is_string()) {
      style.indent = bound[1]->as_text();
    } else {
      SWITCHYARD_ASSIGN(const int64_t width, int_argument(bound, 1, 0));
      if (width > 256) return fail(Code::bad_request, "tojson: an indent of {} is too wide", width);
      style.indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
    }
  }
  if (!bound[2] || bound[2]->is_none()) return {};
  const Value& pair = *bound[2];
  if (!pair.is_sequence() || pair.as_sequence().elements.size() != 2 ||
      !pair.as_sequence().elements[0].is_string() || !pair.as_sequence().elements[1].is_string())
    return fail(Code::bad_request, "tojson: separators must be two strings");
  style.item_separator = pair.as_sequence().elements[0].as_text();
  style.key_separator = pair.as_sequence().elements[1].as_text();
  return {};
}

Result<Value> tojson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound,
                    bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii = flag_argument(bound, 0, false);
  style.sort_keys = flag_argument(bound, 3, false);
  SWITCHYARD_TRY(read_json_layout(bound, style));
  Text out;
  SWITCHYARD_TRY(append_json(input, style, out, interpreter.budget()));
  return interpreter.make_string(std::move(out));
}

constexpr Named<Filter> kFilters[] = {
    {"upper", change_case<to_upper>},
    {"lower", change_case<to_lower>},
    {"capitalize", change_case<capitalize>},
    {"title", change_case<title_filter>},
    {"trim", trim},
    {"replace", replace},
    {"indent", indent},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"format", format},
    {"tojson", tojson},
};

}  // namespace

Filter* find_text_filter(std::string_view name) { return find_named(kFilters, name); }

}  // namespace switchyard::text::jinja
