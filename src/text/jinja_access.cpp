// SPDX-License-Identifier: Apache-2.0
// Access to parts of values: x.name, x[key], x[a:b:c], iteration and "in".
#include <algorithm>

#include "text/jinja_objects.h"

namespace switchyard::text::jinja {
namespace {

/// What messages call a value whose part is missing.
std::string owner(const Value& value) {
  return value.is_none() ? "'None'" : fmt::format("'{} object'", value.type_name());
}

Value missing(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("{} has no attribute '{}'", owner(value), name));
}

/// Python's index: negative ones count from the end; nothing when it is outside.
std::optional<size_t> position(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < -count || index >= count) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + count : index);
}

Result<Value> object_attribute(const Value& value, std::string_view name) {
  if (const auto space = value.as<Namespace>()) {
    const auto found = space->values.find(name);
    return found != space->values.end() ? found->second : missing(value, name);
  }
  if (const auto loop = value.as<LoopState>()) {
    SWITCHYARD_ASSIGN(const auto found, loop->attribute(name));
    if (found) return *found;
    if (Method* method = find_method(value, name))
      return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(value, method)));
    return missing(value, name);
  }
  return fail(Code::bad_request, "attributes of a {} are not supported", value.type_name());
}

/// getattr(): methods and the attributes of objects; nothing for names that do not exist.
Result<std::optional<Value>> python_attribute(const Value& value, std::string_view name) {
  if (Method* method = find_method(value, name)) {
    auto bound = std::make_shared<BoundMethod>(value, method);
    return std::optional<Value>(Value(std::shared_ptr<Object>(std::move(bound))));
  }
  switch (find_refusal(value, name)) {
    case Refusal::none:
      return std::optional<Value>();
    case Refusal::unsupported:
      return fail(Code::bad_request, "'{}' of a {} is not supported", name, value.type_name());
    case Refusal::unsafe:
      break;
  }
  return std::optional<Value>(Value::undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, value.type_name())));
}

}  // namespace

Result<Value> Interpreter::attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return value.undefined_error();
  if (value.is_object()) return object_attribute(value, name);
  SWITCHYARD_ASSIGN(const auto found, python_attribute(value, name));
  if (found) return *found;
  if (value.is_dict()) {
    SWITCHYARD_TRY(budget_.charge(value.as_dict().size() / 8));
    if (const Value* entry = value.as_dict().find(name)) return *entry;
  }
  return missing(value, name);
}

Result<Value> Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) return value.undefined_error();
  if (value.is_dict()) {
    SWITCHYARD_TRY(budget_.charge(value.as_dict().size() / 8));
    if (const Value* entry = value.as_dict().find(key)) return *entry;
  }
  if (key.is_integral() && value.is_sequence() && value.as_sequence().has_items()) {
    const auto& elements = value.as_sequence().elements;
    if (const auto at = position(key.as_int(), elements.size())) return elements[*at];
  }
  if (key.is_integral() && value.is_string()) {
    SWITCHYARD_TRY(budget_.charge_text(value.view().size()));
    const std::vector<size_t> offsets = character_offsets(value.view());
    if (const auto at = position(key.as_int(), offsets.size() - 1))
      return Value(value.as_text().slice(offsets[*at], offsets[*at + 1]));
  }
  if (!key.is_string()) {
    Text shown;
    SWITCHYARD_TRY(append_repr(key, shown, budget_));
    return Value::undefined(fmt::format("{} has no element {}", owner(value), shown.view()));
  }
  // x["name"] falls back to x.name, which dicts have already been asked for.
  if (value.is_object()) return object_attribute(value, key.view());
  SWITCHYARD_ASSIGN(const auto found, python_attribute(value, key.view()));
  return found ? *found : missing(value, key.view());
}

namespace {

/// The bounds of a slice as Python's slice.indices() gives them.
struct Bounds {
  int64_t start, stop, step;
};

Result<int64_t> bound(const Value& value, int64_t fallback, int64_t size, int64_t low,
                      int64_t high) {
  if (value.is_none()) return fallback;
  if (value.is_undefined()) return value.undefined_error();
  if (!value.is_integral())
    return fail(Code::bad_request, "the bounds of a slice must be integers or none, not '{}'",
                value.type_name());
  const int64_t index = value.as_int();
  return std::clamp(index < 0 ? std::max(index, -size - 1) + size : index, low, high);
}

Result<Bounds> slice_bounds(size_t length, const Value& start, const Value& stop,
                            const Value& step) {
  const auto size = static_cast<int64_t>(length);
  Bounds bounds{0, 0, 1};
  if (!step.is_none()) {
    if (!step.is_integral() || step.as_int() == 0)
      return fail(Code::bad_request, "the step of a slice must be an integer other than zero");
    bounds.step = std::clamp(step.as_int(), -size - 1, size + 1);
  }
  const bool back = bounds.step < 0;
  const int64_t low = back ? -1 : 0;
  const int64_t high = back ? size - 1 : size;
  SWITCHYARD_ASSIGN(bounds.start, bound(start, back ? high : low, size, low, high));
  SWITCHYARD_ASSIGN(bounds.stop, bound(stop, back ? low : high, size, low, high));
  return bounds;
}

template <class Take>
void for_each_index(const Bounds& bounds, Take take) {
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
       i += bounds.step)
    take(static_cast<size_t>(i));
}

}  // namespace

Result<Value> Interpreter::slice(const Value& value, const Value& start, const Value& stop,
                                 const Value& step) {
  if (value.is_undefined()) return value.undefined_error();
  if (value.is_string()) {
    const Text& text = value.as_text();
    SWITCHYARD_TRY(budget_.charge_text(text.size()));
    const std::vector<size_t> offsets = character_offsets(text.view());
    SWITCHYARD_ASSIGN(const Bounds bounds, slice_bounds(offsets.size() - 1, start, stop, step));
    if (bounds.step == 1)
      return Value(text.slice(offsets[static_cast<size_t>(bounds.start)],
                              offsets[static_cast<size_t>(std::max(bounds.start, bounds.stop))]));
    Text taken;
    for_each_index(bounds, [&](size_t i) { taken.append(text, offsets[i], offsets[i + 1]); });
    return Value(std::move(taken));
  }
  if (!value.is_sequence() || !value.as_sequence().has_items())
    return fail(Code::bad_request, "a slice of a '{}' is not supported", value.type_name());
  const Sequence& sequence = value.as_sequence();
  if (sequence.flavor == Sequence::Flavor::range)
    return fail(Code::bad_request, "a slice of a range is not supported: use |list");
  SWITCHYARD_ASSIGN(const Bounds bounds, slice_bounds(sequence.elements.size(), start, stop, step));
  SWITCHYARD_TRY(budget_.charge(sequence.elements.size()));
  Sequence taken;
  taken.flavor = sequence.flavor;
  for_each_index(bounds, [&](size_t i) { taken.elements.push_back(sequence.elements[i]); });
  return Value::sequence(std::move(taken));
}

Result<std::vector<Value>> Interpreter::iterate(const Value& value, bool partly) {
  std::vector<Value> elements;
  switch (value.kind()) {
    case Value::Kind::undefined:
      return elements;
    case Value::Kind::sequence: {
      const Sequence& sequence = value.as_sequence();
      SWITCHYARD_TRY(budget_.charge(sequence.elements.size()));
      if (sequence.flavor != Sequence::Flavor::generator) return sequence.elements;
      if (sequence.read == Sequence::Read::part)
        return fail(Code::bad_request,
                    "a generator is used again after a part of it was read: use |list");
      const bool fresh = sequence.read == Sequence::Read::nothing;
      sequence.read = partly ? Sequence::Read::part : Sequence::Read::all;
      if (!fresh) return elements;
      return sequence.elements;
    }
    case Value::Kind::dict:
      SWITCHYARD_TRY(budget_.charge(value.as_dict().size()));
      for (const Dict::Entry& entry : value.as_dict().entries()) elements.push_back(entry.first);
      return elements;
    case Value::Kind::string: {
      const std::vector<size_t> offsets = character_offsets(value.view());
      SWITCHYARD_TRY(budget_.charge(offsets.size() * 2));
      for (size_t i = 0; i + 1 < offsets.size(); ++i)
        elements.emplace_back(value.as_text().slice(offsets[i], offsets[i + 1]));
      return elements;
    }
    default:
      break;
  }
  return fail(Code::bad_request, "'{}' object is not iterable", value.type_name());
}

Result<bool> Interpreter::contains(const Value& container, const Value& value) {
  if (container.is_string()) {
    if (!value.is_string()) {
      if (value.is_undefined()) return value.undefined_error();
      return fail(Code::bad_request, "'in <string>' requires a string as left operand, not {}",
                  value.type_name());
    }
    SWITCHYARD_TRY(budget_.charge_text(container.view().size()));
    return container.view().find(value.view()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    SWITCHYARD_TRY(budget_.charge(container.as_dict().size() / 8));
    if (value.is_dict() || value.is_sequence())
      return fail(Code::bad_request, "a '{}' cannot be the key of a dict", value.type_name());
    return container.as_dict().find(value) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_sequence())
    return fail(Code::bad_request, "argument of type '{}' is not iterable", container.type_name());
  SWITCHYARD_ASSIGN(const std::vector<Value> elements, iterate(container, true));
  for (const Value& element : elements) {
    SWITCHYARD_ASSIGN(const bool same, equal(element, value, budget_));
    if (same) return true;
  }
  return false;
}

}  // namespace switchyard::text::jinja
