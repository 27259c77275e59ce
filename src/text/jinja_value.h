// SPDX-License-Identifier: Apache-2.0
// Value: what a template computes with, after Python's types: undefined, None, bool, int, float, str,
// list, tuple, dict, range, and what filters and methods hand out.
//
// Data is immutable and shared (the sandbox forbids mutation), so values hold no cycles. Namespaces,
// macros and functions are Objects of one rendering: it owns them, and values only point at them.
// Integers have 64 bits; more is an error, never a wrong number.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja_text.h"

namespace switchyard::text::jinja {

class Value;
class Dict;
class Object;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  range,
  view,       ///< dict.keys(), values(), items()
  generator,  ///< what map, select and others give: may be walked once
  object
};

/// Nested deeper, values are refused, so that walking and destroying them needs little stack.
inline constexpr int kMaxValueDepth = 200;

/// The items of a list, tuple or view.
struct Items {
  std::vector<Value> values;
  int depth = 1;              // 1 + the deepest item's
  const char* view_name = "";  // dict_keys, dict_values or dict_items, of views
};

struct Range {
  int64_t start = 0, stop = 0, step = 1;  // step is not 0
  int64_t length() const noexcept;
  int64_t at(int64_t index) const noexcept { return start + index * step; }
};

class Value {
 public:
  Value() : value_(Missing{}) {}  ///< undefined

  /// Undefined; using it for more than printing and testing is an error with this message.
  static Value undefined(std::string message);
  static Value none() { return Value(Storage(std::in_place_type<None>)); }
  static Value boolean(bool value) { return Value(Storage(value)); }
  static Value integer(int64_t value) { return Value(Storage(value)); }
  static Value real(double value) { return Value(Storage(value)); }
  static Value string(Text text);
  static Value string(std::string_view bytes, Origin origin);
  /// Of a list, tuple or dict that would nest deeper than kMaxValueDepth: Code::bad_request.
  static Result<Value> list(std::vector<Value> values);
  static Result<Value> tuple(std::vector<Value> values);
  static Result<Value> view(std::vector<Value> values, const char* name);
  static Result<Value> generator(std::vector<Value> values);
  static Value dict(std::shared_ptr<const Dict> dict) { return Value(Storage(std::move(dict))); }
  static Value range(Range range) { return Value(Storage(range)); }
  static Value object(Object* object) { return Value(Storage(object)); }

  /// A JSON tree; its strings are of `origin`. Error: an integer beyond 64 signed bits.
  static Result<Value> from_json(const Json& json, Origin origin);

  Kind kind() const noexcept { return static_cast<Kind>(value_.index()); }
  bool is(Kind kind) const noexcept { return this->kind() == kind; }
  bool is_number() const noexcept;  ///< bool, int or float, as in Python
  /// list, tuple or view.
  bool has_items() const noexcept { return is(Kind::list) || is(Kind::tuple) || is(Kind::view); }

  /// Only of the right kind.
  bool as_bool() const noexcept { return *std::get_if<bool>(&value_); }
  int64_t as_int() const noexcept;    ///< int or bool
  double as_double() const noexcept;  ///< int, bool or float
  const Text& as_text() const noexcept { return **std::get_if<TextPointer>(&value_); }
  const std::string& as_string() const noexcept { return as_text().bytes(); }
  const std::vector<Value>& items() const noexcept { return item_block().values; }
  const Items& item_block() const noexcept;
  const Dict& as_dict() const noexcept { return **std::get_if<DictPointer>(&value_); }
  const Range& as_range() const noexcept { return *std::get_if<Range>(&value_); }
  Object& as_object() const noexcept { return **std::get_if<Object*>(&value_); }
  /// The message of an undefined value.
  std::string_view missing_message() const noexcept;

  /// Takes the next item of a generator; false at its end.
  bool next(Value& item) const;

  /// Python's name of the type: str, int, list, NoneType.
  std::string_view type_name() const noexcept;
  int depth() const noexcept;

 private:
  struct Missing {
    std::shared_ptr<const std::string> message;
  };
  struct None {};
  struct Generator {
    std::vector<Value> values;
    size_t at = 0;
    int depth = 1;
  };
  using TextPointer = std::shared_ptr<const Text>;
  using DictPointer = std::shared_ptr<const Dict>;
  struct List {
    std::shared_ptr<const Items> items;
  };
  struct Tuple {
    std::shared_ptr<const Items> items;
  };
  struct View {
    std::shared_ptr<const Items> items;
  };
  using Storage = std::variant<Missing, None, bool, int64_t, double, TextPointer, List, Tuple,
                               DictPointer, Range, View, std::shared_ptr<Generator>, Object*>;

  explicit Value(Storage storage) : value_(std::move(storage)) {}

  Storage value_;
};

/// A dict in order of insertion. Keys are None, bool, int, float, str or tuples of these.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  /// Later entries replace the values of equal earlier keys. Errors: an unhashable key, too deep.
  static Result<std::shared_ptr<const Dict>> make(std::vector<Entry> entries);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  size_t size() const noexcept { return entries_.size(); }
  const Value* find(std::string_view key) const noexcept;
  /// Null also when the key is of a type that no dict has.
  const Value* find(const Value& key) const noexcept;
  int depth() const noexcept { return depth_; }

 private:
  void index();

  std::vector<Entry> entries_;
  std::vector<uint32_t> by_name_;  // entries with string keys, sorted by key
  int depth_ = 1;
};

/// A thing of one rendering: a namespace, a macro, the loop variable, a function.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const noexcept = 0;
  /// An attribute; undefined when there is none.
  virtual Value attribute(std::string_view name) = 0;
  virtual bool callable() const noexcept { return false; }
};

}  // namespace switchyard::text::jinja
