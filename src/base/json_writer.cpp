// SPDX-License-Identifier: Apache-2.0
// JSON out. Every string is checked as UTF-8 on its way; a broken sequence becomes U+FFFD once per maximal part, as
// the Unicode standard (3.9, "best practice for using U+FFFD") recommends.
#include <cmath>
#include <iterator>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

namespace switchyard {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void append_escaped(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
  }
}

bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

void append_string(std::string& out, std::string_view text) {
  out += '"';
  size_t i = 0;
  while (i < text.size()) {
    size_t run = i;
    while (run < text.size() && is_plain(static_cast<unsigned char>(text[run]))) ++run;
    out.append(text, i, run - i);
    i = run;
    if (i == text.size()) break;
    size_t skip = 0;
    const size_t length = utf8_length(text.substr(i), &skip);
    if (length == 1) {
      append_escaped(out, static_cast<unsigned char>(text[i]));
    } else if (length > 1) {
      out.append(text, i, length);
    } else {
      out += kReplacement;
    }
    i += length > 0 ? length : skip;
  }
  out += '"';
}

void append_real(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", number);
  // Without a point or an exponent it would read back as an integer, and -0.0 would lose its sign.
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

}  // namespace

void JsonWriter::newline() {
  if (indent_ == 0) return;
  out_ += '\n';
  out_.append(has_member_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_member_.empty()) return;
  if (has_member_.back()) out_ += ',';
  has_member_.back() = true;
  newline();
}

JsonWriter& JsonWriter::begin_object() {
  before_value();
  out_ += '{';
  has_member_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  before_value();
  out_ += '[';
  has_member_.push_back(false);
  return *this;
}

void JsonWriter::end(char bracket) {
  SWITCHYARD_CHECK(!has_member_.empty() && !after_key_, "an end without its begin or its value");
  const bool any = has_member_.back();
  has_member_.pop_back();
  if (any) newline();
  out_ += bracket;
}

JsonWriter& JsonWriter::end_object() {
  end('}');
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  end(']');
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  SWITCHYARD_CHECK(!has_member_.empty() && !after_key_, "a key outside an object: {}", name);
  before_value();
  append_string(out_, name);
  out_ += indent_ == 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  before_value();
  append_string(out_, text);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t number) {
  before_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::unsigned_integer(uint64_t number) {
  before_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::real(double number) {
  before_value();
  append_real(out_, number);
  return *this;
}

JsonWriter& JsonWriter::boolean(bool flag) {
  before_value();
  out_ += flag ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() {
  before_value();
  out_ += "null";
  return *this;
}

JsonWriter& JsonWriter::value(const Json& json) {
  SWITCHYARD_CHECK(has_member_.size() <= kMaxJsonDepth, "a tree deeper than {}", kMaxJsonDepth);
  switch (json.kind()) {
    case Json::Kind::null:
      return null();
    case Json::Kind::boolean:
      return boolean(json.as_bool());
    case Json::Kind::integer:
      return integer(json.as_int());
    case Json::Kind::unsigned_integer:
      return unsigned_integer(json.as_unsigned());
    case Json::Kind::real:
      return real(json.as_double());
    case Json::Kind::string:
      return string(json.as_string());
    case Json::Kind::array:
      begin_array();
      for (const Json& item : json.as_array()) value(item);
      return end_array();
    case Json::Kind::object:
      begin_object();
      for (const auto& [name, member] : json.as_object()) key(name).value(member);
      return end_object();
  }
  SWITCHYARD_UNREACHABLE("a kind of JSON");
}

std::string json_text(const Json& json) {
  constexpr size_t kLongest = 80;
  std::string text;
  JsonWriter(text).value(json);
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

}  // namespace switchyard
