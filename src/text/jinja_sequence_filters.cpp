// SPDX-License-Identifier: Apache-2.0
// Filters on sequences: parts, items, map, select and their kin, and "default".
#include "text/jinja_attribute_path.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_string_tools.h"

namespace switchyard::text::jinja {
namespace {

Value generator(std::vector<Value> elements) {
  Sequence sequence;
  sequence.flavor = Sequence::Flavor::generator;
  sequence.elements = std::move(elements);
  return Value::sequence(std::move(sequence));
}

Result<Value> length(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  const auto count = [](size_t size) { return Value(static_cast<int64_t>(size)); };
  if (input.is_undefined()) return count(0);
  if (input.is_dict()) return count(input.as_dict().size());
  if (input.is_sequence() && input.as_sequence().has_length())
    return count(input.as_sequence().elements.size());
  if (input.is_string()) {
    SWITCHYARD_TRY(interpreter.budget().charge_text(input.view().size()));
    return count(count_characters(input.view()));
  }
  return fail(Code::bad_request, "object of type '{}' has no length", input.type_name());
}

Result<Value> first(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input, true));
  return elements.empty() ? Value::undefined("there is no first item: the sequence is empty")
                          : elements.front();
}

Result<Value> last(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  if (input.is_sequence() && !input.as_sequence().has_length())
    return fail(Code::bad_request, "a generator has no last item: use |list|last");
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input));
  return elements.empty() ? Value::undefined("there is no last item: the sequence is empty")
                          : elements.back();
}

Result<Value> list(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(auto elements, interpreter.iterate(input));
  return Value::list(std::move(elements));
}

Result<Value> reverse(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input));
  std::vector<Value> reversed(elements.rbegin(), elements.rend());
  if (!input.is_string()) return generator(std::move(reversed));
  return join_texts(interpreter, Text(), reversed);
}

Result<Value> join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"d", "attribute"}));
  Text separator;
  if (bound[0]) {
    SWITCHYARD_ASSIGN(separator, interpreter.to_text(*bound[0]));
  }
  SWITCHYARD_ASSIGN(auto elements, interpreter.iterate(input));
  if (bound[1] && !bound[1]->is_none()) {
    SWITCHYARD_ASSIGN(const AttributePath path, AttributePath::read(*bound[1]));
    for (Value& element : elements) {
      SWITCHYARD_ASSIGN(element, path.get(interpreter, element, nullptr));
    }
  }
  return join_texts(interpreter, separator, elements);
}

Result<Value> items(Interpreter&, const Value& input, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  std::vector<Value> pairs;
  if (input.is_dict()) {
    for (const Dict::Entry& entry : input.as_dict().entries())
      pairs.push_back(Value::tuple({entry.first, entry.second}));
  } else if (!input.is_undefined()) {
    return fail(Code::bad_request, "items needs a mapping, not '{}'", input.type_name());
  }
  return generator(std::move(pairs));
}

Result<Value> fallback(Interpreter&, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"default_value", "boolean"}));
  const bool replaces = input.is_undefined() || (flag_argument(bound, 1, false) && !input.truth());
  if (!replaces) return input;
  return bound[0] ? *bound[0] : Value::string("", true);
}

Result<Value> map_attribute(Interpreter& interpreter, std::vector<Value> elements,
                            const Arguments& arguments) {
  if (!arguments.positional.empty())
    return fail(Code::bad_request, "map takes a filter or an attribute");
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"attribute", "default"}));
  SWITCHYARD_ASSIGN(const AttributePath path, AttributePath::read(*bound[0]));
  const Value* missing = bound[1] && !bound[1]->is_none() ? &*bound[1] : nullptr;
  for (Value& element : elements) {
    SWITCHYARD_ASSIGN(element, path.get(interpreter, element, missing));
  }
  return generator(std::move(elements));
}

/// The arguments behind the first `count`, for the filter or test that map or select name.
Arguments behind(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Result<Value> map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!input.truth()) return generator({});  // none and 0 as well, as in the reference
  SWITCHYARD_ASSIGN(auto elements, interpreter.iterate(input));
  for (const auto& [name, value] : arguments.named)
    if (name == "attribute") return map_attribute(interpreter, std::move(elements), arguments);
  if (arguments.positional.empty() || !arguments.positional[0].is_string())
    return fail(Code::bad_request, "map needs the name of a filter");
  const std::string_view name = arguments.positional[0].view();
  Filter* filter = find_filter(name);
  if (!filter) return fail(Code::bad_request, "there is no filter named '{}'", name);
  const Arguments rest = behind(arguments, 1);
  for (Value& element : elements) {
    SWITCHYARD_TRY(interpreter.budget().charge(4));
    SWITCHYARD_ASSIGN(element, filter(interpreter, element, rest));
  }
  return generator(std::move(elements));
}

/// select and its three kin: elements whose (attribute's) test says `wanted`.
template <bool kWanted, bool kAttribute>
Result<Value> choose(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!input.truth()) return generator({});
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input));
  std::optional<AttributePath> path;
  size_t used = 0;
  if (kAttribute) {
    if (arguments.positional.empty())
      return fail(Code::bad_request, "the name of an attribute is missing");
    SWITCHYARD_ASSIGN(path, AttributePath::read(arguments.positional[used++]));
  }
  Test* test = nullptr;
  if (used < arguments.positional.size()) {
    const Value& name = arguments.positional[used++];
    test = name.is_string() ? find_test(name.view()) : nullptr;
    if (!test) return fail(Code::bad_request, "there is no such test");
  }
  const Arguments rest = behind(arguments, used);
  std::vector<Value> chosen;
  for (const Value& element : elements) {
    SWITCHYARD_TRY(interpreter.budget().charge(4));
    Value tested = element;
    if (path) {
      SWITCHYARD_ASSIGN(tested, path->get(interpreter, element, nullptr));
    }
    bool passed = tested.truth();
    if (test) {
      SWITCHYARD_ASSIGN(passed, test(interpreter, tested, rest));
    }
    if (passed == kWanted) chosen.push_back(element);
  }
  return generator(std::move(chosen));
}

constexpr Named<Filter> kFilters[] = {
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"join", join},
    {"items", items},
    {"default", fallback},
    {"d", fallback},
    {"map", map},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
};

}  // namespace

Filter* find_sequence_filter(std::string_view name) { return find_named(kFilters, name); }

}  // namespace switchyard::text::jinja
