// SPDX-License-Identifier: Apache-2.0
// Methods of strings that give parts: split, rsplit, splitlines, partition, removeprefix.
#include "text/jinja_interpreter.h"
#include "text/jinja_string_tools.h"
#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

/// Where the run of spaces (or of other characters) that starts at `at` ends.
size_t skip_run(std::string_view view, size_t at, bool spaces) {
  while (at < view.size()) {
    size_t next = at;
    if (is_space(next_character(view, next)) != spaces) break;
    at = next;
  }
  return at;
}

/// The words between white space; after `most` splits the rest is one part.
std::vector<Value> split_words(const Text& text, int64_t most) {
  std::vector<Value> parts;
  const std::string_view view = text.view();
  for (size_t at = skip_run(view, 0, true); at < view.size();) {
    const bool is_rest = most >= 0 && static_cast<int64_t>(parts.size()) == most;
    const size_t end = is_rest ? view.size() : skip_run(view, at, false);
    const Text part = text.slice(at, end);
    parts.emplace_back(is_rest ? strip(part, nullptr, false, true) : part);
    at = skip_run(view, end, true);
  }
  return parts;
}

std::vector<Value> split_at(const Text& text, std::string_view separator, int64_t most) {
  std::vector<Value> parts;
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = text.view().find(separator, at);
    if (found == std::string_view::npos) break;
    parts.emplace_back(text.slice(at, found));
    at = found + separator.size();
  }
  parts.emplace_back(text.slice(at, text.size()));
  return parts;
}

std::vector<Value> split_at_from_right(const Text& text, std::string_view separator, int64_t most) {
  std::vector<Value> parts;
  size_t end = text.size();
  while (end >= separator.size() && (most < 0 || static_cast<int64_t>(parts.size()) < most)) {
    const size_t found = text.view().rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.emplace_back(text.slice(found + separator.size(), end));
    end = found;
  }
  parts.emplace_back(text.slice(0, end));
  return {parts.rbegin(), parts.rend()};
}

template <bool kFromRight>
Result<Value> split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"sep", "maxsplit"}));
  SWITCHYARD_ASSIGN(const int64_t most, int_argument(bound, 1, -1));
  const Text& text = self.as_text();
  SWITCHYARD_TRY(interpreter.budget().charge_text(text.size()));
  std::vector<Value> parts;
  if (!bound[0] || bound[0]->is_none()) {
    if (kFromRight && most >= 0)
      return fail(Code::bad_request, "rsplit at white space with a limit is not supported");
    SWITCHYARD_TRY(interpreter.budget().charge(text.size()));
    parts = split_words(text, most);
  } else {
    SWITCHYARD_ASSIGN(const Text separator, text_argument(bound, 0));
    if (separator.empty()) return fail(Code::bad_request, "split: the separator is empty");
    parts = kFromRight ? split_at_from_right(text, separator.view(), most)
                       : split_at(text, separator.view(), most);
  }
  SWITCHYARD_TRY(interpreter.budget().charge(parts.size() * 4));
  return Value::list(std::move(parts));
}

Result<Value> splitlines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"keepends"}));
  SWITCHYARD_TRY(interpreter.budget().charge(self.view().size()));
  std::vector<Value> lines;
  for (Text& line : split_lines(self.as_text(), flag_argument(bound, 0, false)))
    lines.emplace_back(std::move(line));
  return Value::list(std::move(lines));
}

template <bool kFromRight>
Result<Value> partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"sep"}));
  SWITCHYARD_ASSIGN(const Text separator, text_argument(bound, 0));
  if (separator.empty()) return fail(Code::bad_request, "partition: the separator is empty");
  const Text& text = self.as_text();
  SWITCHYARD_TRY(interpreter.budget().charge_text(text.size()));
  const size_t found =
      kFromRight ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  if (found == std::string_view::npos) {
    const Value nothing = Value::string("", true);
    return kFromRight ? Value::tuple({nothing, nothing, self})
                      : Value::tuple({self, nothing, nothing});
  }
  const size_t behind = found + separator.size();
  return Value::tuple({Value(text.slice(0, found)), Value(text.slice(found, behind)),
                       Value(text.slice(behind, text.size()))});
}

template <bool kPrefix>
Result<Value> remove_affix(Interpreter& interpreter, const Value& self,
                           const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"affix"}));
  SWITCHYARD_ASSIGN(const Text affix, text_argument(bound, 0));
  SWITCHYARD_TRY(interpreter.budget().charge_text(self.view().size()));
  const size_t size = self.view().size();
  if (affix.empty()) return self;
  if (kPrefix && self.view().starts_with(affix.view()))
    return Value(self.as_text().slice(affix.size(), size));
  if (!kPrefix && self.view().ends_with(affix.view()))
    return Value(self.as_text().slice(0, size - affix.size()));
  return self;
}

constexpr Named<Method> kMethods[] = {
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
};

}  // namespace

Method* find_split_method(std::string_view name) { return find_named(kMethods, name); }

}  // namespace switchyard::text::jinja
