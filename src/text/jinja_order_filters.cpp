// SPDX-License-Identifier: Apache-2.0
// Filters that compare elements: sort, dictsort, unique, min, max.
#include <algorithm>
#include <numeric>

#include "text/jinja_attribute_path.h"
#include "text/jinja_interpreter.h"

namespace switchyard::text::jinja {
namespace {

/// Unless case counts, strings compare in lower case.
Value fold(const Value& value, bool case_sensitive) {
  return case_sensitive || !value.is_string() ? value : Value(to_lower(value.as_text()));
}

/// One key for each element: its attribute (or attributes, with commas between), as lists, because lists may hold
/// equal elements that have no order.
Result<std::vector<Value>> sort_keys(Interpreter& interpreter, const std::vector<Value>& elements,
                                     const std::optional<Value>& attribute, bool case_sensitive) {
  std::vector<AttributePath> paths;
  if (attribute && attribute->is_string()) {
    std::string_view rest = attribute->view();
    while (true) {
      const size_t comma = rest.find(',');
      SWITCHYARD_ASSIGN(AttributePath path,
                        AttributePath::read(Value::string(rest.substr(0, comma), true)));
      paths.push_back(std::move(path));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else if (attribute && !attribute->is_none()) {
    SWITCHYARD_ASSIGN(AttributePath path, AttributePath::read(*attribute));
    paths.push_back(std::move(path));
  }
  std::vector<Value> keys;
  for (const Value& element : elements) {
    SWITCHYARD_TRY(interpreter.budget().charge(2));
    std::vector<Value> parts;
    if (paths.empty()) parts.push_back(fold(element, case_sensitive));
    for (const AttributePath& path : paths) {
      SWITCHYARD_ASSIGN(Value part, path.get(interpreter, element, nullptr));
      parts.push_back(fold(part, case_sensitive));
    }
    keys.push_back(Value::list(std::move(parts)));
  }
  return keys;
}

/// The stable order of the keys; `reverse` keeps equal keys in their order, too.
Result<std::vector<size_t>> sorted(Interpreter& interpreter, const std::vector<Value>& keys,
                                   bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    const auto below = less(keys[reverse ? b : a], keys[reverse ? a : b], interpreter.budget());
    if (!below.ok()) status = below.error();
    return below.ok() && *below;
  });
  SWITCHYARD_TRY(status);
  return order;
}

std::vector<Value> pick(const std::vector<Value>& elements, const std::vector<size_t>& order) {
  std::vector<Value> picked;
  picked.reserve(order.size());
  for (const size_t i : order) picked.push_back(elements[i]);
  return picked;
}

Result<Value> sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"reverse", "case_sensitive", "attribute"}));
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input));
  SWITCHYARD_ASSIGN(const auto keys,
                    sort_keys(interpreter, elements, bound[2], flag_argument(bound, 1, false)));
  SWITCHYARD_ASSIGN(const auto order, sorted(interpreter, keys, flag_argument(bound, 0, false)));
  return Value::list(pick(elements, order));
}

Result<Value> dictsort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return input.undefined_error();
  if (!input.is_dict())
    return fail(Code::bad_request, "dictsort needs a dict, not '{}'", input.type_name());
  bool by_value = false;
  if (bound[1]) {
    SWITCHYARD_ASSIGN(const Text by, text_argument(bound, 1));
    by_value = by.view() == "value";
    if (!by_value && by.view() != "key")
      return fail(Code::bad_request, "dictsort: 'by' must be 'key' or 'value'");
  }
  std::vector<Value> pairs;
  std::vector<Value> sides;
  for (const Dict::Entry& entry : input.as_dict().entries()) {
    pairs.push_back(Value::tuple({entry.first, entry.second}));
    sides.push_back(by_value ? entry.second : entry.first);
  }
  SWITCHYARD_ASSIGN(const auto keys,
                    sort_keys(interpreter, sides, std::nullopt, flag_argument(bound, 0, false)));
  SWITCHYARD_ASSIGN(const auto order, sorted(interpreter, keys, flag_argument(bound, 2, false)));
  return Value::list(pick(pairs, order));
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"case_sensitive", "attribute"}));
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input));
  SWITCHYARD_ASSIGN(const auto keys,
                    sort_keys(interpreter, elements, bound[1], flag_argument(bound, 0, false)));
  Sequence kept;
  kept.flavor = Sequence::Flavor::generator;
  std::vector<size_t> seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Value& key = keys[i].as_sequence().elements[0];
    if (key.is_dict() || (key.is_sequence() && key.as_sequence().flavor == Sequence::Flavor::list))
      return fail(Code::bad_request, "unique: unhashable type: '{}'", key.type_name());
    bool known = false;
    for (size_t j = 0; j < seen.size() && !known; ++j) {
      SWITCHYARD_ASSIGN(known, equal(keys[seen[j]], keys[i], interpreter.budget()));
    }
    if (known) continue;
    seen.push_back(i);
    kept.elements.push_back(elements[i]);
  }
  return Value::sequence(std::move(kept));
}

template <bool kMax>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"case_sensitive", "attribute"}));
  SWITCHYARD_ASSIGN(const auto elements, interpreter.iterate(input));
  if (elements.empty()) return Value::undefined("an empty sequence has no least or greatest item");
  SWITCHYARD_ASSIGN(const auto keys,
                    sort_keys(interpreter, elements, bound[1], flag_argument(bound, 0, false)));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    SWITCHYARD_ASSIGN(const bool better,
                      less(keys[kMax ? best : i], keys[kMax ? i : best], interpreter.budget()));
    if (better) best = i;
  }
  return elements[best];
}

constexpr Named<Filter> kFilters[] = {
    {"sort", sort},          {"dictsort", dictsort}, {"unique", unique},
    {"min", extreme<false>}, {"max", extreme<true>},
};

}  // namespace

Filter* find_order_filter(std::string_view name) { return find_named(kFilters, name); }

}  // namespace switchyard::text::jinja
