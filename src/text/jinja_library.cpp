// SPDX-License-Identifier: Apache-2.0
// Implements jinja_library.h: arguments, and the names that exist.
#include "text/jinja_library.h"

#include <algorithm>

#include "text/jinja_objects.h"

namespace switchyard::text::jinja {

Result<Bound> bind(const Arguments& arguments, std::initializer_list<std::string_view> names) {
  if (arguments.positional.size() > names.size())
    return fail(Code::bad_request, "takes at most {} argument(s), not {}", names.size(),
                arguments.positional.size());
  Bound bound(names.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return fail(Code::bad_request, "there is no argument named '{}'", name);
    auto& place = bound[static_cast<size_t>(found - names.begin())];
    if (place) return fail(Code::bad_request, "the argument '{}' is given twice", name);
    place = value;
  }
  return bound;
}

Result<Text> text_argument(const Bound& bound, size_t index) {
  if (!bound[index]) return fail(Code::bad_request, "argument {} is missing", index + 1);
  const Value& value = *bound[index];
  if (value.is_undefined()) return value.undefined_error();
  if (value.is_string()) return value.as_text();
  return fail(Code::bad_request, "argument {} must be a string, not '{}'", index + 1,
              value.type_name());
}

Result<int64_t> int_argument(const Bound& bound, size_t index, std::optional<int64_t> fallback) {
  if (!bound[index]) {
    if (fallback) return *fallback;
    return fail(Code::bad_request, "argument {} is missing", index + 1);
  }
  const Value& value = *bound[index];
  if (value.is_undefined()) return value.undefined_error();
  if (value.is_integral()) return value.as_int();
  return fail(Code::bad_request, "argument {} must be an integer, not '{}'", index + 1,
              value.type_name());
}

bool flag_argument(const Bound& bound, size_t index, bool fallback) {
  return bound[index] ? bound[index]->truth() : fallback;
}

Filter* find_filter(std::string_view name) {
  if (Filter* filter = find_text_filter(name)) return filter;
  if (Filter* filter = find_sequence_filter(name)) return filter;
  if (Filter* filter = find_order_filter(name)) return filter;
  return find_number_filter(name);
}

Method* find_method(const Value& self, std::string_view name) {
  if (self.is_string()) {
    Method* method = find_string_method(name);
    return method ? method : find_split_method(name);
  }
  return find_container_method(self, name);
}

namespace {

/// Names of Python that change their object, or lead out of the sandbox.
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
/// Names of Python that templates could use, and which are not here.
constexpr std::string_view kString[] = {
    "casefold", "center",       "encode",    "expandtabs",  "format_map", "isascii", "isdecimal",
    "islower",  "isidentifier", "isnumeric", "isprintable", "istitle",    "isupper", "ljust",
    "rindex",   "rjust",        "swapcase",  "maketrans",   "translate",  "zfill"};
constexpr std::string_view kNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kRange[] = {"start", "stop", "step", "count", "index"};
constexpr std::string_view kView[] = {"mapping", "isdisjoint", "send", "throw", "close"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Refusal refusal(bool unsafe, bool unsupported) {
  return unsafe ? Refusal::unsafe : unsupported ? Refusal::unsupported : Refusal::none;
}

}  // namespace

Refusal find_refusal(const Value& self, std::string_view name) {
  if (name.starts_with("__")) return Refusal::unsafe;
  if (self.is_string()) return refusal(false, is_one_of(name, kString));
  if (self.is_number()) return refusal(false, is_one_of(name, kNumber));
  if (self.is_dict()) return refusal(is_one_of(name, kDictChanges), name == "fromkeys");
  if (!self.is_sequence()) return Refusal::none;
  switch (self.as_sequence().flavor) {
    case Sequence::Flavor::list:
      return refusal(is_one_of(name, kListChanges), false);
    case Sequence::Flavor::tuple:
      return Refusal::none;
    case Sequence::Flavor::range:
      return refusal(false, is_one_of(name, kRange));
    default:
      return refusal(false, is_one_of(name, kView));
  }
}

}  // namespace switchyard::text::jinja
