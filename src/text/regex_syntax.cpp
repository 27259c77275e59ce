// SPDX-License-Identifier: Apache-2.0
// One pass over the pattern. A class is read into its inside (without brackets) first, because an
// intersection turns it inside out.
#include "text/regex_syntax.h"

#include <algorithm>
#include <cctype>

namespace switchyard::text {
namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWords = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHex = "0-9A-Fa-f";

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    std::string out;
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        SWITCHYARD_TRY(escape(out, false));
      } else if (c == '[') {
        SWITCHYARD_TRY(bracket(out));
      } else if (c == '(') {
        SWITCHYARD_TRY(group(out));
      } else if (c == '{') {
        SWITCHYARD_TRY(interval(out));
      } else {
        out += c;
        ++at_;
      }
    }
    return out;
  }

 private:
  Error refuse(std::string_view what) const {
    return fail(Code::unsupported, "the pattern \"{}\" uses {} at byte {}, which is not supported",
                pattern_, what, at_);
  }
  Error broken(std::string_view what) const {
    return fail(Code::bad_file, "the pattern \"{}\" is no regular expression: {} at byte {}",
                pattern_, what, at_);
  }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  /// A backslash and what belongs to it, inside a class or outside.
  Status escape(std::string& out, bool in_class) {
    if (at_ + 1 >= pattern_.size()) return broken("a lone backslash");
    const char c = pattern_[at_ + 1];
    const auto put = [&](std::string_view inside, bool negated) {
      out += in_class ? std::string(inside) : fmt::format("[{}{}]", negated ? "^" : "", inside);
      at_ += 2;
      return Status();
    };
    switch (c) {
      case 's':
        return put(kSpaces, false);
      case 'S':
        return in_class ? put(kNoSpaces, false) : put(kSpaces, true);
      case 'w':
        return put(kWords, false);
      case 'h':
        return put(kHex, false);
      case 'v':
        return put("\\x{b}", false);
      case 'W':
      case 'H':
        if (in_class) return refuse(fmt::format("\\{} in a class", c));
        return put(c == 'W' ? kWords : kHex, true);
      case 'u':
      case 'x':
        return number(out);
      case 'p':
      case 'P':
        return property(out);
      default:
        return simple_escape(out, c, in_class);
    }
  }

  Status simple_escape(std::string& out, char c, bool in_class) {
    if (!in_class && (c == 'b' || c == 'B')) {
      const bool edge = c == 'b';
      out += fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", kWords,
                         edge ? '!' : '=', edge ? '=' : '!');
      at_ += 2;
      return {};
    }
    constexpr std::string_view kAlike = "dDtnrfae";
    constexpr std::string_view kAnchors = "AzZ123456789";
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    const bool known = !letter || kAlike.find(c) != std::string_view::npos ||
                       (in_class ? c == 'b' : kAnchors.find(c) != std::string_view::npos);
    if (!known) return refuse(fmt::format("\\{}", c));
    out += pattern_.substr(at_, 2);
    at_ += 2;
    return {};
  }

  /// \uHHHH, \xH, \xHH and \x{...}.
  Status number(std::string& out) {
    size_t from = at_ + 2;
    const bool braces = pattern_[at_ + 1] == 'x' && from < pattern_.size() && pattern_[from] == '{';
    if (braces) ++from;
    size_t to = from;
    const size_t most = braces ? 8 : pattern_[at_ + 1] == 'u' ? 4 : 2;
    while (to < pattern_.size() && to < from + most && is_hex(pattern_[to])) ++to;
    const std::string_view digits = pattern_.substr(from, to - from);
    if (digits.empty() || (pattern_[at_ + 1] == 'u' && digits.size() < 4)) {
      return broken("hexadecimal digits are missing");
    }
    if (braces && (to >= pattern_.size() || pattern_[to] != '}')) return broken("a } is missing");
    // Two digits above 7F are one byte of UTF-8 to Oniguruma and a character to PCRE2.
    if (!braces && digits.size() == 2 && digits[0] >= '8') return refuse("\\x for a single byte");
    out += fmt::format("\\x{{{}}}", digits);
    at_ = to + (braces ? 1 : 0);
    return {};
  }

  Status property(std::string& out) {
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{') return refuse("\\p without {");
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return broken("a } is missing");
    out += pattern_.substr(at_, close + 1 - at_);
    at_ = close + 1;
    return {};
  }

  /// A class with its brackets.
  Status bracket(std::string& out) {
    std::string inside, other;
    bool negated = false, other_negated = false;
    SWITCHYARD_TRY(class_inside(inside, negated));
    if (!next_is("&&")) {
      ++at_;
      out += fmt::format("[{}{}]", negated ? "^" : "", inside);
      return {};
    }
    at_ += 2;
    if (negated || inside.empty()) return refuse("&& in a negated or empty class");
    if (!next_is("[")) return refuse("&& without a class in brackets behind it");
    SWITCHYARD_TRY(class_inside(other, other_negated));
    if (next_is("&&")) return refuse("&& inside &&");
    ++at_;
    if (!next_is("]")) return refuse("more than one class behind &&");
    ++at_;
    out += fmt::format("(?:(?{}[{}])[{}])", other_negated ? '!' : '=', other, inside);
    return {};
  }

  /// From [ to just before the ] or && that ends this part of the class.
  Status class_inside(std::string& out, bool& negated) {
    ++at_;
    negated = next_is("^");
    if (negated) ++at_;
    if (next_is("]")) return refuse("a class that begins with ]");
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == ']' || next_is("&&")) return {};
      if (c == '\\') {
        SWITCHYARD_TRY(escape(out, true));
      } else if (next_is("[:")) {
        const size_t close = pattern_.find(":]", at_ + 2);
        if (close == std::string_view::npos) return broken("a :] is missing");
        out += pattern_.substr(at_, close + 2 - at_);
        at_ = close + 2;
      } else if (c == '[') {
        return refuse("a class inside a class");
      } else {
        out += c;
        ++at_;
      }
    }
    return broken("a ] is missing");
  }

  Status group(std::string& out) {
    if (next_is("(*")) return refuse("(*");
    if (!next_is("(?")) {
      out += '(';
      ++at_;
      return {};
    }
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)", "(?-i)"}) {
      if (!next_is(known)) continue;
      out += known;
      at_ += known.size();
      return {};
    }
    return refuse(fmt::format("the group {}", pattern_.substr(at_, 3)));
  }

  /// {n}, {n,}, {,m} and {n,m}; any other { is text.
  Status interval(std::string& out) {
    size_t to = at_ + 1;
    while (to < pattern_.size() && (is_digit(pattern_[to]) || pattern_[to] == ',')) ++to;
    const std::string_view bounds = pattern_.substr(at_ + 1, to - at_ - 1);
    const auto commas = std::count(bounds.begin(), bounds.end(), ',');
    if (to >= pattern_.size() || pattern_[to] != '}' || commas > 1 ||
        bounds.size() == static_cast<size_t>(commas)) {
      out += "\\{";
      ++at_;
      return {};
    }
    const char behind = to + 1 < pattern_.size() ? pattern_[to + 1] : '\0';
    // Ruby reads {n}+ as a repeated repetition and {n}? as an optional one.
    if (behind == '+' || (behind == '?' && commas == 0)) return refuse("+ or ? behind {n}");
    out += fmt::format("{{{}{}}}", bounds.front() == ',' ? "0" : "", bounds);
    at_ = to + 1;
    return {};
  }

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace switchyard::text
