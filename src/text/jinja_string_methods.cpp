// SPDX-License-Identifier: Apache-2.0
// Methods of strings that give a string, a number or a flag. Those that give parts are in jinja_split_methods.cpp.
#include <algorithm>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_string_tools.h"
#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

template <Text (*kChange)(const Text&)>
Result<Value> change_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  return interpreter.make_string(kChange(self.as_text()));
}

template <bool kLeft, bool kRight>
Result<Value> strip_ends(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"chars"}));
  if (!bound[0] || bound[0]->is_none())
    return interpreter.make_string(strip(self.as_text(), nullptr, kLeft, kRight));
  SWITCHYARD_ASSIGN(const Text characters, text_argument(bound, 0));
  SWITCHYARD_TRY(interpreter.budget().charge(characters.size()));
  const std::string_view view = characters.view();
  return interpreter.make_string(strip(self.as_text(), &view, kLeft, kRight));
}

Result<Value> replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"old", "new", "count"}));
  SWITCHYARD_ASSIGN(const Text old, text_argument(bound, 0));
  SWITCHYARD_ASSIGN(const Text with, text_argument(bound, 1));
  SWITCHYARD_ASSIGN(const int64_t count, int_argument(bound, 2, -1));
  return replace_text(interpreter, self.as_text(), old, with, count);
}

/// The part of a string that the arguments start and end name: bytes, and the number of its first character.
struct Window {
  size_t begin, end;
  int64_t first_character;
  bool empty;  // start lies behind end: not even "" is found
};

Result<Window> read_window(Interpreter& interpreter, const Text& text, const Bound& bound) {
  SWITCHYARD_TRY(interpreter.budget().charge_text(text.size()));
  const bool has_start = bound[1] && !bound[1]->is_none();
  const bool has_end = bound[2] && !bound[2]->is_none();
  if (!has_start && !has_end) return Window{0, text.size(), 0, false};
  const std::vector<size_t> offsets = character_offsets(text.view());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
  };
  int64_t start = 0;
  int64_t end = size;
  if (has_start) {
    SWITCHYARD_ASSIGN(start, int_argument(bound, 1, 0));
  }
  if (has_end) {
    SWITCHYARD_ASSIGN(end, int_argument(bound, 2, 0));
  }
  const bool empty = start > size || clamp(start) > clamp(end);
  start = clamp(start);
  end = std::max(start, clamp(end));
  return Window{offsets[static_cast<size_t>(start)], offsets[static_cast<size_t>(end)], start,
                empty};
}

template <bool kStart>
Result<Value> has_affix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"affix", "start", "end"}));
  SWITCHYARD_ASSIGN(const Window window, read_window(interpreter, self.as_text(), bound));
  const std::string_view view = self.view().substr(window.begin, window.end - window.begin);
  std::vector<Value> affixes;
  if (bound[0]) affixes.push_back(*bound[0]);
  if (bound[0] && bound[0]->is_sequence() &&
      bound[0]->as_sequence().flavor == Sequence::Flavor::tuple)
    affixes = bound[0]->as_sequence().elements;
  for (const Value& affix : affixes) {
    SWITCHYARD_ASSIGN(const Text text, text_argument({affix}, 0));
    if (window.empty) continue;
    if (kStart ? view.starts_with(text.view()) : view.ends_with(text.view())) return Value(true);
  }
  if (!bound[0]) return fail(Code::bad_request, "the text to look for is missing");
  return Value(false);
}

/// find and rfind; -1 when it is not there.
template <bool kLast>
Result<Value> find(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"sub", "start", "end"}));
  SWITCHYARD_ASSIGN(const Text sub, text_argument(bound, 0));
  SWITCHYARD_ASSIGN(const Window window, read_window(interpreter, self.as_text(), bound));
  const std::string_view view = self.view().substr(window.begin, window.end - window.begin);
  const size_t found = kLast ? view.rfind(sub.view()) : view.find(sub.view());
  if (window.empty || found == std::string_view::npos) return Value(int64_t{-1});
  return Value(window.first_character +
               static_cast<int64_t>(count_characters(view.substr(0, found))));
}

Result<Value> index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const Value found, find<false>(interpreter, self, arguments));
  if (found.as_int() < 0) return fail(Code::bad_request, "index: the text was not found");
  return found;
}

Result<Value> count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"sub", "start", "end"}));
  SWITCHYARD_ASSIGN(const Text sub, text_argument(bound, 0));
  SWITCHYARD_ASSIGN(const Window window, read_window(interpreter, self.as_text(), bound));
  const std::string_view view = self.view().substr(window.begin, window.end - window.begin);
  if (window.empty) return Value(int64_t{0});
  if (sub.empty()) return Value(static_cast<int64_t>(count_characters(view)) + 1);
  int64_t found = 0;
  for (size_t at = 0; (at = view.find(sub.view(), at)) != std::string_view::npos; at += sub.size())
    ++found;
  return Value(found);
}

Result<Value> join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"iterable"}));
  if (!bound[0]) return fail(Code::bad_request, "join needs a sequence");
  SWITCHYARD_ASSIGN(const auto items, interpreter.iterate(*bound[0]));
  for (size_t i = 0; i < items.size(); ++i)
    if (!items[i].is_string())
      return fail(Code::bad_request, "join: item {} must be a string, not '{}'", i,
                  items[i].type_name());
  return join_texts(interpreter, self.as_text(), items);
}

Result<Value> format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return format_braces(interpreter, self.as_text(), arguments);
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char32_t c) { return is_letter(c) || is_digit(c); }

/// At least one character, and each of that class. What digits are outside of ASCII is not told.
template <bool (*kClass)(char32_t), bool kDigits>
Result<Value> all_are(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_TRY(interpreter.budget().charge_text(self.view().size()));
  const std::string_view view = self.view();
  for (size_t at = 0; at < view.size();) {
    const char32_t c = next_character(view, at);
    if (kDigits && c >= 0x80 && is_numeric(c))
      return fail(Code::bad_request, "digits outside of ASCII are not supported here");
    if (!kClass(c)) return Value(false);
  }
  return Value(!view.empty());
}

constexpr Named<Method> kMethods[] = {
    {"upper", change_case<to_upper>},
    {"lower", change_case<to_lower>},
    {"title", change_case<to_title>},
    {"capitalize", change_case<capitalize>},
    {"strip", strip_ends<true, true>},
    {"lstrip", strip_ends<true, false>},
    {"rstrip", strip_ends<false, true>},
    {"replace", replace},
    {"startswith", has_affix<true>},
    {"endswith", has_affix<false>},
    {"find", find<false>},
    {"rfind", find<true>},
    {"index", index},
    {"count", count},
    {"join", join},
    {"format", format},
    {"isalpha", all_are<is_letter, false>},
    {"isdigit", all_are<is_digit, true>},
    {"isalnum", all_are<is_alphanumeric, true>},
    {"isspace", all_are<is_space, false>},
};

}  // namespace

Method* find_string_method(std::string_view name) { return find_named(kMethods, name); }

}  // namespace switchyard::text::jinja
