// SPDX-License-Identifier: Apache-2.0
// The one door to JSON: a strict reader (simdjson) into a small ordered tree, and an append-only writer.
//
// The reader refuses what JSON forbids and what hides attacks: invalid UTF-8, duplicate keys, trailing bytes, NaN,
// integers that fit neither int64 nor uint64, nesting deeper than kMaxJsonDepth. Key order is kept.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace switchyard {

inline constexpr int kMaxJsonDepth = 64;

/// One JSON value. Copies are deep; objects keep the order of the text.
class Json {
 public:
  enum class Kind : uint8_t {
    null,
    boolean,
    integer,
    unsigned_integer,
    real,
    string,
    array,
    object
  };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  explicit Json(bool value) : value_(value) {}
  explicit Json(int64_t value) : value_(value) {}
  explicit Json(uint64_t value) : value_(value) {}  ///< only for numbers above the int64 range
  explicit Json(double value) : value_(value) {}
  explicit Json(int value) : value_(int64_t{value}) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(const char* value) : value_(std::string(value)) {}  ///< else it would become a bool
  explicit Json(Array value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}

  Kind kind() const noexcept { return static_cast<Kind>(value_.index()); }
  std::string_view kind_name() const noexcept;
  bool is_null() const noexcept { return kind() == Kind::null; }
  bool is_bool() const noexcept { return kind() == Kind::boolean; }
  bool is_string() const noexcept { return kind() == Kind::string; }
  bool is_array() const noexcept { return kind() == Kind::array; }
  bool is_object() const noexcept { return kind() == Kind::object; }
  bool is_integer() const noexcept { return kind() == Kind::integer; }
  bool is_number() const noexcept {
    return kind() == Kind::integer || kind() == Kind::unsigned_integer || kind() == Kind::real;
  }

  /// Unchecked access: only when the kind is right (SWITCHYARD_CHECKed).
  bool as_bool() const;
  int64_t as_int() const;
  uint64_t as_unsigned() const;  ///< of an unsigned_integer
  double as_double() const;      ///< of any number
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;

  /// The member of that name, or null if this is no object or has none.
  const Json* find(std::string_view key) const noexcept;

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

/// Parses a whole text. `name` (a file name, say) starts every message. Errors: Code::bad_file with the byte offset
/// where simdjson can tell it.
Result<Json> parse_json(std::string_view text, std::string_view name);

/// Reads and parses a file of at most `max_bytes`.
Result<Json> read_json_file(const std::string& path, uint64_t max_bytes = uint64_t{256} << 20);

/// The value as one short line of JSON, for messages: long ones are cut and end in "...".
std::string json_text(const Json& json);

/// Appends JSON to a string. Commas and escapes are its business; numbers that JSON lacks (NaN, infinity) are
/// written as null. Invalid UTF-8 in strings is replaced by U+FFFD, so that the output is always valid.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out, int indent = 0) : out_(out), indent_(indent) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  JsonWriter& real(double number);  ///< shortest form that reads back to the same double
  JsonWriter& boolean(bool flag);
  JsonWriter& null();
  JsonWriter& value(const Json& json);  ///< a whole tree

  /// key(name) followed by the value.
  JsonWriter& field(std::string_view name, std::string_view text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, const char* text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, bool flag) { return key(name).boolean(flag); }
  JsonWriter& field(std::string_view name, double number) { return key(name).real(number); }
  JsonWriter& field(std::string_view name, int64_t number) { return key(name).integer(number); }
  JsonWriter& field(std::string_view name, int number) { return key(name).integer(number); }
  JsonWriter& field(std::string_view name, uint64_t number) {
    return key(name).unsigned_integer(number);
  }

 private:
  void before_value();
  void newline();
  void end(char bracket);

  std::string& out_;
  int indent_;                    // spaces per level; 0 writes one line
  std::vector<bool> has_member_;  // per open level: something was written before
  bool after_key_ = false;
};

}  // namespace switchyard
