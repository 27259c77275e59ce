// SPDX-License-Identifier: Apache-2.0
// Implements jinja_value.h: making, looking up, comparing.
#include "text/jinja_value.h"

#include <algorithm>

namespace switchyard::text::jinja {
namespace {

// A dict is searched from front to back, which larger ones would make slow.
constexpr size_t kMaxBuiltKeys = 4096;

int depth_of(const std::vector<Value>& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  return depth + 1;
}

bool is_key(const Value& value) {
  return value.is_none() || value.is_number() || value.is_string();
}

/// Equality of scalars; int, float and bool meet as numbers.
bool same_scalar(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) {
    // Compared as long doubles, which hold every int64 and every double.
    const auto wide = [](const Value& v) {
      return v.is_integral() ? static_cast<long double>(v.as_int())
                             : static_cast<long double>(v.as_real());
    };
    return wide(a) == wide(b);
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.view() == b.view();
  return a.is_none() || a.is_undefined();
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.storage_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::sequence(Sequence sequence) {
  sequence.depth = depth_of(sequence.elements);
  Value value;
  value.storage_ = std::make_shared<const Sequence>(std::move(sequence));
  return value;
}

Value Value::list(std::vector<Value> items) {
  Sequence made;
  made.elements = std::move(items);
  return sequence(std::move(made));
}

Value Value::tuple(std::vector<Value> items) {
  Sequence made;
  made.flavor = Sequence::Flavor::tuple;
  made.elements = std::move(items);
  return sequence(std::move(made));
}

Value Value::dict(Dict dict) {
  Value value;
  value.storage_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

Result<Value> Value::from_json(const Json& json, bool trusted) {
  switch (json.kind()) {
    case Json::Kind::null:
      return Value();
    case Json::Kind::boolean:
      return Value(json.as_bool());
    case Json::Kind::integer:
      return Value(json.as_int());
    case Json::Kind::real:
      return Value(json.as_double());
    case Json::Kind::string:
      return string(json.as_string(), trusted);
    case Json::Kind::unsigned_integer:
      return fail(Code::bad_request,
                  "the integer {} is above 2^63 - 1, the largest that templates take",
                  json.as_unsigned());
    case Json::Kind::array: {
      std::vector<Value> items;
      for (const Json& item : json.as_array()) {
        SWITCHYARD_ASSIGN(Value value, from_json(item, trusted));
        items.push_back(std::move(value));
      }
      return list(std::move(items));
    }
    case Json::Kind::object:
      break;
  }
  Dict made;
  for (const Json::Member& member : json.as_object()) {
    SWITCHYARD_ASSIGN(Value value, from_json(member.second, trusted));
    made.add_new(string(member.first, trusted), std::move(value));  // JSON texts have no key twice
  }
  return dict(std::move(made));
}

int64_t Value::as_int() const noexcept {
  if (const bool* flag = std::get_if<bool>(&storage_)) return *flag ? 1 : 0;
  return *std::get_if<int64_t>(&storage_);
}

double Value::as_real() const noexcept {
  if (const double* real = std::get_if<double>(&storage_)) return *real;
  return static_cast<double>(as_int());
}

bool Value::truth() const noexcept {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return as_bool();
    case Kind::integer:
      return as_int() != 0;
    case Kind::real:
      return as_real() != 0;
    case Kind::string:
      return !as_text().empty();
    case Kind::sequence:
      return !as_sequence().has_length() || !as_sequence().elements.empty();
    case Kind::dict:
      return as_dict().size() != 0;
    case Kind::object:
      break;
  }
  return true;
}

std::string_view Value::type_name() const noexcept {
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int", "float", "str"};
  constexpr std::string_view kFlavors[] = {"list",      "tuple",       "range",     "generator",
                                           "dict_keys", "dict_values", "dict_items"};
  if (kind() <= Kind::string) return kNames[static_cast<size_t>(kind())];
  if (is_sequence()) return kFlavors[static_cast<size_t>(as_sequence().flavor)];
  return is_dict() ? "dict" : as_object()->type_name();
}

int Value::depth() const noexcept {
  return is_sequence() ? as_sequence().depth : is_dict() ? as_dict().depth() : 0;
}

Error Value::undefined_error() const {
  const Undefined* undefined = std::get_if<Undefined>(&storage_);
  return Error(Code::bad_request,
               undefined && undefined->why ? *undefined->why : "undefined value");
}

const Value* Dict::find(const Value& key) const noexcept {
  if (!is_key(key)) return nullptr;
  for (const Entry& entry : entries_)
    if (same_scalar(entry.first, key)) return &entry.second;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const noexcept {
  for (const Entry& entry : entries_)
    if (entry.first.is_string() && entry.first.view() == key) return &entry.second;
  return nullptr;
}

void Dict::add_new(Value key, Value value) {
  depth_ = std::max(depth_, value.depth() + 1);
  entries_.emplace_back(std::move(key), std::move(value));
}

Status Dict::set(Value key, Value value) {
  if (!is_key(key))
    return fail(Code::bad_request, "a key of a dict must be a string, a number or none, not '{}'",
                key.type_name());
  for (Entry& entry : entries_) {
    if (!same_scalar(entry.first, key)) continue;
    depth_ = std::max(depth_, value.depth() + 1);
    entry.second = std::move(value);
    return {};
  }
  if (entries_.size() >= kMaxBuiltKeys)
    return fail(Code::bad_request, "a dict of more than {} keys is not supported", kMaxBuiltKeys);
  add_new(std::move(key), std::move(value));
  return {};
}

Status Budget::charge(size_t work) {
  left_ -= static_cast<int64_t>(std::min(work, size_t{1} << 40));
  if (left_ >= 0) return {};
  return fail(Code::bad_request, "the template does more work than its budget allows");
}

namespace {

Result<bool> equal_sequences(const Sequence& a, const Sequence& b, Budget& budget) {
  const bool comparable = a.has_items() && a.flavor == b.flavor;
  if (!comparable || a.elements.size() != b.elements.size()) return &a == &b;
  for (size_t i = 0; i < a.elements.size(); ++i) {
    SWITCHYARD_ASSIGN(const bool same, equal(a.elements[i], b.elements[i], budget));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    SWITCHYARD_TRY(budget.charge(1 + b.size() / 4));
    const Value* other = b.find(entry.first);
    if (!other) return false;
    SWITCHYARD_ASSIGN(const bool same, equal(entry.second, *other, budget));
    if (!same) return false;
  }
  return true;
}

Error no_order(const Value& a, const Value& b) {
  if (a.is_undefined()) return a.undefined_error();
  if (b.is_undefined()) return b.undefined_error();
  return fail(Code::bad_request, "'<' not supported between instances of '{}' and '{}'",
              a.type_name(), b.type_name());
}

}  // namespace

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  SWITCHYARD_TRY(budget.charge(1));
  if (a.is_sequence() && b.is_sequence())
    return equal_sequences(a.as_sequence(), b.as_sequence(), budget);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.as_dict(), b.as_dict(), budget);
  if (a.is_object() && b.is_object()) return a.as_object() == b.as_object();
  if (a.is_string() && b.is_string()) SWITCHYARD_TRY(budget.charge_text(a.view().size()));
  return same_scalar(a, b);
}

Result<bool> less(const Value& a, const Value& b, Budget& budget) {
  SWITCHYARD_TRY(budget.charge(1));
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
  if (a.is_number() && b.is_number()) return a.as_real() < b.as_real();
  if (a.is_string() && b.is_string()) {
    SWITCHYARD_TRY(budget.charge_text(std::min(a.view().size(), b.view().size())));
    return a.view() < b.view();  // the order of UTF-8 is that of code points
  }
  if (!a.is_sequence() || !b.is_sequence()) return no_order(a, b);
  const Sequence& left = a.as_sequence();
  const Sequence& right = b.as_sequence();
  if (left.flavor != right.flavor || left.flavor > Sequence::Flavor::tuple) return no_order(a, b);
  const size_t common = std::min(left.elements.size(), right.elements.size());
  for (size_t i = 0; i < common; ++i) {
    SWITCHYARD_ASSIGN(const bool same, equal(left.elements[i], right.elements[i], budget));
    if (!same) return less(left.elements[i], right.elements[i], budget);
  }
  return left.elements.size() < right.elements.size();
}

}  // namespace switchyard::text::jinja
