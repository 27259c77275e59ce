// SPDX-License-Identifier: Apache-2.0
// Value: what expressions of a template yield, with the meaning and the spelling of Python.
//
// Values never change once made (the reference runs in an immutable sandbox); namespaces are the exception.
// Copies share their content. Undefined and none differ.
#pragma once
#include <cstddef>
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

struct Sequence;
class Dict;
class Object;

class Value {
 public:
  enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    real,
    string,
    sequence,
    dict,
    object
  };

  /// None.
  Value() : storage_(None{}) {}
  explicit Value(bool value) : storage_(value) {}
  explicit Value(int64_t value) : storage_(value) {}
  explicit Value(double value) : storage_(value) {}
  explicit Value(Text text) : storage_(std::make_shared<const Text>(std::move(text))) {}
  explicit Value(std::shared_ptr<Object> object) : storage_(std::move(object)) {}
  explicit Value(const char*) = delete;  // it would become a bool

  /// `why` is the message of the error when it is used.
  static Value undefined(std::string why);
  static Value string(std::string_view bytes, bool trusted) { return Value(Text(bytes, trusted)); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value sequence(Sequence sequence);
  static Value dict(Dict dict);
  /// The value of a JSON tree. Errors: Code::bad_request for integers above 2^63 - 1.
  static Result<Value> from_json(const Json& json, bool trusted = false);

  Kind kind() const noexcept { return static_cast<Kind>(storage_.index()); }
  bool is_undefined() const noexcept { return kind() == Kind::undefined; }
  bool is_none() const noexcept { return kind() == Kind::none; }
  bool is_string() const noexcept { return kind() == Kind::string; }
  bool is_dict() const noexcept { return kind() == Kind::dict; }
  bool is_sequence() const noexcept { return kind() == Kind::sequence; }
  bool is_object() const noexcept { return kind() == Kind::object; }
  /// An int, or a bool, which counts as 0 or 1.
  bool is_integral() const noexcept { return kind() == Kind::integer || kind() == Kind::boolean; }
  bool is_number() const noexcept { return is_integral() || kind() == Kind::real; }

  /// Unchecked access: only when the kind is right.
  bool as_bool() const noexcept { return *std::get_if<bool>(&storage_); }
  int64_t as_int() const noexcept;  ///< of an integral value
  double as_real() const noexcept;  ///< of any number
  const Text& as_text() const noexcept {
    return **std::get_if<std::shared_ptr<const Text>>(&storage_);
  }
  std::string_view view() const noexcept { return as_text().view(); }
  const Sequence& as_sequence() const noexcept {
    return **std::get_if<std::shared_ptr<const Sequence>>(&storage_);
  }
  const Dict& as_dict() const noexcept {
    return **std::get_if<std::shared_ptr<const Dict>>(&storage_);
  }
  const std::shared_ptr<Object>& as_object() const noexcept {
    return *std::get_if<std::shared_ptr<Object>>(&storage_);
  }
  /// The object when it is a T, else null.
  template <class T>
  std::shared_ptr<T> as() const {
    return is_object() ? std::dynamic_pointer_cast<T>(as_object()) : nullptr;
  }

  bool truth() const noexcept;
  std::string_view type_name() const noexcept;
  /// How deep containers lie in one another; 0 for a scalar.
  int depth() const noexcept;
  /// The error of using an undefined value.
  Error undefined_error() const;

 private:
  struct Undefined {
    std::shared_ptr<const std::string> why;
  };
  struct None {};
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>>
      storage_;
};

/// Lists and all that is like them. Generators (what map and select give) can be read once.
struct Sequence {
  enum class Flavor : uint8_t { list, tuple, range, generator, keys, values, items };

  Flavor flavor = Flavor::list;
  std::vector<Value> elements;
  int64_t start = 0, stop = 0, step = 1;  // of a range
  int depth = 1;
  /// Of a generator: how much of it was read. What a partial reader leaves is not followed up.
  enum class Read : uint8_t { nothing, part, all };
  mutable Read read = Read::nothing;

  bool has_length() const noexcept { return flavor != Flavor::generator; }
  /// x[0] works.
  bool has_items() const noexcept { return flavor <= Flavor::range; }
};

/// Keys in the order of their first insertion. Keys are scalars.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const Value* find(const Value& key) const noexcept;
  const Value* find(std::string_view key) const noexcept;
  /// Looks for the key first. Errors: Code::bad_request for a key that is no scalar, and too many keys.
  Status set(Value key, Value value);
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  size_t size() const noexcept { return entries_.size(); }
  int depth() const noexcept { return depth_; }

 private:
  friend class Value;
  void add_new(Value key, Value value);

  std::vector<Entry> entries_;
  int depth_ = 1;
};

/// Namespaces, loops, macros, functions and methods: things of which there is one.
class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const noexcept = 0;
  virtual bool is_callable() const noexcept { return false; }
  /// Drops all values that it holds, so that circles of namespaces and macros end with the rendering.
  virtual void clear() noexcept {}
};

/// The work that one rendering may do: a unit for each node evaluated, each element made, each 32 bytes of text.
class Budget {
 public:
  explicit Budget(int64_t work) : left_(work) {}
  Status charge(size_t work);
  Status charge_text(size_t bytes) { return charge(1 + bytes / 32); }

 private:
  int64_t left_;
};

/// ==. It never fails in Python, and here only for lack of budget.
Result<bool> equal(const Value& a, const Value& b, Budget& budget);
/// a < b. Errors: Code::bad_request for kinds that have no order.
Result<bool> less(const Value& a, const Value& b, Budget& budget);

/// str() and repr(), appended; numbers, None and punctuation are trusted, strings keep their origin.
Status append_str(const Value& value, Text& out, Budget& budget);
Status append_repr(const Value& value, Text& out, Budget& budget);
std::string real_repr(double value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool indented = false;
  Text indent;  // of one level
  Text item_separator{", ", true};
  Text key_separator{": ", true};
};

/// json.dumps().
Status append_json(const Value& value, const JsonStyle& style, Text& out, Budget& budget);

}  // namespace switchyard::text::jinja
