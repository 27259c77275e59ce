// SPDX-License-Identifier: Apache-2.0
// A strict scanner of JSON (RFC 8259) that keeps nothing but its position and one bit per open bracket.
#include "base/json_locate.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"

namespace switchyard {
namespace {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  JsonFault run() {
    if (text_.starts_with("\xEF\xBB\xBF")) {
      fault("a byte order mark");
    } else if (values()) {
      skip_space();
      if (at_ < text_.size()) fault("content after the end of the value");
    }
    return fault_;
  }

 private:
  bool fault(std::string_view what) {
    fault_ = {true, at_, std::string(what)};
    return false;
  }
  bool end() const { return at_ >= text_.size(); }
  char peek() const { return end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (!end() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }

  /// One value with everything inside it.
  bool values() {
    do {
      skip_space();
      if (!begin_value()) return false;
      if (!after_value()) return false;
    } while (!open_.empty());
    return true;
  }

  /// A scalar, or opening brackets down to the first scalar or empty container.
  bool begin_value() {
    while (true) {
      skip_space();
      const char c = peek();
      if (c != '{' && c != '[') return scalar();
      if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) return fault("nesting too deep");
      ++at_;
      open_.push_back(c == '{');
      skip_space();
      if (peek() == (c == '{' ? '}' : ']')) return true;  // after_value() closes it
      if (c == '{' && !member_name()) return false;
    }
  }

  /// Closing brackets, up to the comma before the next value or the end of the text's value.
  bool after_value() {
    while (!open_.empty()) {
      skip_space();
      const bool object = open_.back();
      if (take(object ? '}' : ']')) {
        open_.pop_back();
        continue;
      }
      if (!take(',')) return fault(object ? "expected ',' or '}'" : "expected ',' or ']'");
      return !object || member_name();
    }
    return true;
  }

  bool member_name() {
    skip_space();
    if (peek() != '"') return fault("expected a member name in quotes");
    if (!string()) return false;
    skip_space();
    return take(':') || fault("expected ':'");
  }

  bool scalar() {
    const char c = peek();
    if (c == '"') return string();
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return true;
      }
    }
    return fault(end() ? "the text ends where a value was expected" : "expected a value");
  }

  bool string() {
    const size_t start = at_++;
    while (!end()) {
      const auto c = static_cast<unsigned char>(peek());
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c < 0x20) return fault("a control character inside a string");
      if (c == '\\') {
        if (!escape()) return false;
        continue;
      }
      size_t skip = 0;
      const size_t length = utf8_length(text_.substr(at_), &skip);
      if (length == 0) return fault("invalid UTF-8");
      at_ += length;
    }
    at_ = start;
    return fault("a string without its closing quote");
  }

  bool escape() {
    const size_t start = at_++;
    const char c = peek();
    if (c != 'u') {
      if (end() || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) {
        at_ = start;
        return fault("an unknown escape");
      }
      ++at_;
      return true;
    }
    at_ = start;
    const int unit = hex_unit();
    if (unit < 0) return fault("expected four hexadecimal digits after \\u");
    const bool high = unit >= 0xD800 && unit <= 0xDBFF;
    const bool low = unit >= 0xDC00 && unit <= 0xDFFF;
    if (!high && !low) return true;
    const int next = high ? hex_unit() : -1;
    if (next >= 0xDC00 && next <= 0xDFFF) return true;
    at_ = start;
    return fault("half of a surrogate pair");
  }

  /// The code unit of "\uXXXX" at the position, which moves behind it; or -1, and it stays.
  int hex_unit() {
    if (text_.size() - at_ < 6 || text_[at_] != '\\' || text_[at_ + 1] != 'u') return -1;
    int unit = 0;
    for (size_t i = at_ + 2; i < at_ + 6; ++i) {
      const char c = text_[i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return -1;
      unit = unit * 16 + digit;
    }
    at_ += 6;
    return unit;
  }

  size_t digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }

  bool number() {
    const size_t start = at_;
    take('-');
    const bool zero = peek() == '0';
    const size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return number_fault(start, "not a number");
    bool real = false;
    if (take('.')) {
      real = true;
      if (digits() == 0) return number_fault(start, "not a number");
    }
    if (take('e') || take('E')) {
      real = true;
      if (!take('+')) take('-');
      if (digits() == 0) return number_fault(start, "not a number");
    }
    return in_range(std::string(text_.substr(start, at_ - start)), real) ||
           number_fault(start, "a number out of range");
  }

  static bool in_range(const std::string& digits, bool real) {
    errno = 0;
    if (real) return std::isfinite(std::strtod(digits.c_str(), nullptr));
    if (digits[0] == '-') {
      std::strtoll(digits.c_str(), nullptr, 10);
    } else {
      std::strtoull(digits.c_str(), nullptr, 10);
    }
    return errno == 0;
  }

  bool number_fault(size_t start, std::string_view what) {
    at_ = start;
    return fault(what);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<bool> open_;  // per open bracket: it is an object
  JsonFault fault_;
};

}  // namespace

JsonFault locate_json_fault(std::string_view text) { return Scanner(text).run(); }

}  // namespace switchyard
