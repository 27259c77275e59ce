// SPDX-License-Identifier: Apache-2.0
// Methods of dicts, lists, tuples and of the variable "loop". None changes its object.
#include "text/jinja_objects.h"

namespace switchyard::text::jinja {
namespace {

Result<Value> get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"key", "default"}));
  if (!bound[0] || !arguments.named.empty())
    return fail(Code::bad_request, "get takes a key and perhaps a default, without names");
  SWITCHYARD_TRY(interpreter.budget().charge(self.as_dict().size() / 8));
  if (const Value* found = self.as_dict().find(*bound[0])) return *found;
  return bound[1] ? *bound[1] : Value();
}

/// keys(), values() and items().
template <Sequence::Flavor kFlavor>
Result<Value> view(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  SWITCHYARD_TRY(interpreter.budget().charge(self.as_dict().size()));
  Sequence made;
  made.flavor = kFlavor;
  for (const Dict::Entry& entry : self.as_dict().entries()) {
    if (kFlavor == Sequence::Flavor::items)
      made.elements.push_back(Value::tuple({entry.first, entry.second}));
    else
      made.elements.push_back(kFlavor == Sequence::Flavor::keys ? entry.first : entry.second);
  }
  return Value::sequence(std::move(made));
}

Result<Value> copy(Interpreter&, const Value& self, const Arguments& arguments) {
  SWITCHYARD_TRY(bind(arguments, {}));
  return self;  // values do not change, so that one is as good as two
}

Result<Value> index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"value"}));
  if (!bound[0]) return fail(Code::bad_request, "index needs a value");
  const auto& elements = self.as_sequence().elements;
  for (size_t i = 0; i < elements.size(); ++i) {
    SWITCHYARD_ASSIGN(const bool same, equal(elements[i], *bound[0], interpreter.budget()));
    if (same) return Value(static_cast<int64_t>(i));
  }
  return fail(Code::bad_request, "index: the value is not in the list");
}

Result<Value> count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  SWITCHYARD_ASSIGN(const auto bound, bind(arguments, {"value"}));
  if (!bound[0]) return fail(Code::bad_request, "count needs a value");
  int64_t found = 0;
  for (const Value& element : self.as_sequence().elements) {
    SWITCHYARD_ASSIGN(const bool same, equal(element, *bound[0], interpreter.budget()));
    found += same ? 1 : 0;
  }
  return Value(found);
}

Result<Value> cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    return fail(Code::bad_request, "cycle needs values, without names");
  const auto loop = self.as<LoopState>();
  return arguments.positional[static_cast<size_t>(loop->index0()) % arguments.positional.size()];
}

Result<Value> changed(Interpreter&, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) return fail(Code::bad_request, "changed takes no named arguments");
  SWITCHYARD_ASSIGN(const bool differs, self.as<LoopState>()->changed(arguments.positional));
  return Value(differs);
}

constexpr Named<Method> kDict[] = {
    {"get", get},
    {"keys", view<Sequence::Flavor::keys>},
    {"values", view<Sequence::Flavor::values>},
    {"items", view<Sequence::Flavor::items>},
    {"copy", copy},
};
constexpr Named<Method> kTuple[] = {{"index", index}, {"count", count}};
constexpr Named<Method> kLoop[] = {{"cycle", cycle}, {"changed", changed}};

}  // namespace

Method* find_container_method(const Value& self, std::string_view name) {
  if (self.is_dict()) return find_named(kDict, name);
  if (self.is_object()) return self.as<LoopState>() ? find_named(kLoop, name) : nullptr;
  if (!self.is_sequence() || self.as_sequence().flavor > Sequence::Flavor::tuple) return nullptr;
  if (self.as_sequence().flavor == Sequence::Flavor::list && name == "copy") return copy;
  return find_named(kTuple, name);
}

}  // namespace switchyard::text::jinja
