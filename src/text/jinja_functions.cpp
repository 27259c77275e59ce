// SPDX-License-Identifier: Apache-2.0
// Global functions: range, namespace, dict, raise_exception, strftime_now.
#include <clocale>
#include <ctime>

#include <locale.h>

#include "text/jinja_objects.h"

namespace switchyard::text::jinja {
namespace {

/// How many numbers range() gives, without overflow.
uint64_t range_length(int64_t start, int64_t stop, int64_t step) {
  const auto distance = [](int64_t low, int64_t high) {
    return static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  };
  if (step > 0)
    return start < stop ? (distance(start, stop) - 1) / static_cast<uint64_t>(step) + 1 : 0;
  const uint64_t size = uint64_t{0} - static_cast<uint64_t>(step);
  return start > stop ? (distance(stop, start) - 1) / size + 1 : 0;
}

Result<Value> range(Interpreter& interpreter, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"start", "stop", "step"}));
  if (!arguments.named.empty()) return fail(Code::bad_request, "range takes no named arguments");
  Sequence made;
  made.flavor = Sequence::Flavor::range;
  SWITCHYARD_ASSIGN(made.start, int_argument(bound, 0, std::nullopt));
  SWITCHYARD_ASSIGN(made.stop, int_argument(bound, 1, made.start));
  SWITCHYARD_ASSIGN(made.step, int_argument(bound, 2, 1));
  if (!bound[1]) made.start = 0;
  if (made.step == 0) return fail(Code::bad_request, "range: the step must not be zero");
  const uint64_t length = range_length(made.start, made.stop, made.step);
  if (length > static_cast<uint64_t>(interpreter.limits().range))
    return fail(Code::bad_request, "range of {} elements: at most {} are allowed", length,
                interpreter.limits().range);
  SWITCHYARD_TRY(interpreter.budget().charge(length));
  int64_t next = made.start;
  for (uint64_t i = 0; i < length; ++i) {
    made.elements.emplace_back(next);
    if (i + 1 < length) next += made.step;
  }
  return Value::sequence(std::move(made));
}

/// dict(other, name=value, ...)
Result<Dict> merge(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return fail(Code::bad_request, "takes at most one dict");
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& given = arguments.positional[0];
    if (!given.is_dict())
      return fail(Code::bad_request, "a dict is made of a dict, not of a '{}'", given.type_name());
    dict = given.as_dict();
    SWITCHYARD_TRY(interpreter.budget().charge(dict.size()));
  }
  for (const auto& [name, value] : arguments.named) {
    SWITCHYARD_TRY(interpreter.budget().charge(1 + dict.size() / 8));
    SWITCHYARD_TRY(dict.set(Value::string(name, true), value));
  }
  return dict;
}

Result<Value> make_dict(Interpreter& interpreter, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(Dict dict, merge(interpreter, arguments));
  return Value::dict(std::move(dict));
}

Result<Value> make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Dict dict, merge(interpreter, arguments));
  auto space = std::make_shared<Namespace>();
  for (const Dict::Entry& entry : dict.entries()) {
    if (!entry.first.is_string())
      return fail(Code::bad_request, "the names in a namespace must be strings");
    space->values.insert_or_assign(std::string(entry.first.view()), entry.second);
  }
  return interpreter.keep(std::move(space));
}

Result<Value> raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"message"}));
  if (!bound[0]) return fail(Code::bad_request, "raise_exception needs a message");
  SWITCHYARD_ASSIGN(const Text message, interpreter.to_text(*bound[0]));
  return interpreter.raise(std::string(message.view()));
}

/// strftime in the "C" locale, whatever the host program has set.
Result<std::string> format_time(const std::string& format, const std::tm& now) {
  constexpr std::string_view kConversions = "aAbBcdDeFGgHhIjmMnprRSTtuUVwWxXyY%";
  for (size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
    if (at + 1 >= format.size() || kConversions.find(format[at + 1]) == std::string_view::npos)
      return fail(Code::bad_request, "strftime_now: the format '{}' is not supported",
                  format.substr(at, 2));
  }
  if (format.empty()) return std::string();
  if (format.size() > 1024 || format.find('\0') != std::string::npos)
    return fail(Code::bad_request,
                "strftime_now: the format is longer than 1024 bytes or has a zero byte");
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  std::string text(format.size() * 32 + 1, '\0');
  text.resize(::strftime_l(text.data(), text.size(), format.c_str(), &now, plain));
  return text;
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"format"}));
  SWITCHYARD_ASSIGN(const Text format, text_argument(bound, 0));
  SWITCHYARD_ASSIGN(const std::string text,
                    format_time(std::string(format.view()), interpreter.now()));
  return Value::string(text, format.all_trusted());
}

constexpr Named<Function> kFunctions[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Function* find_function(std::string_view name) { return find_named(kFunctions, name); }

}  // namespace switchyard::text::jinja
