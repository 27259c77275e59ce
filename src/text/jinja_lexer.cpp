// SPDX-License-Identifier: Apache-2.0
// Implements jinja_lexer.h: one pass that changes between text and the inside of tags.
#include "text/jinja_lexer.h"

#include <algorithm>

#include "text/jinja_string_literal.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

/// Line ends become "\n", and the last one goes: the two things done before all else.
std::string normalize_lines(std::string_view source) {
  std::string lines;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      lines += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      lines += source[i];
    }
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)), rest_(source_) {}

  Result<std::vector<Token>> run() {
    while (at_ < rest_.size()) SWITCHYARD_TRY(text());
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  /// Moves to `to`, counting lines.
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(rest_.begin() + static_cast<ptrdiff_t>(at_),
                                         rest_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  bool starts(std::string_view what) const { return rest_.substr(at_).starts_with(what); }

  size_t skip_spaces(size_t at) const {
    while (at < rest_.size()) {
      size_t next = at;
      if (!is_space(next_character(rest_, next))) break;
      at = next;
    }
    return at;
  }

  /// Where the next tag starts, or the end of the source.
  size_t find_tag(size_t at) const {
    for (; at + 1 < rest_.size(); ++at)
      if (rest_[at] == '{' &&
          (rest_[at + 1] == '{' || rest_[at + 1] == '%' || rest_[at + 1] == '#'))
        return at;
    return rest_.size();
  }

  /// What stays of the text [at_, end) in front of a tag with this sign.
  std::string_view before_tag(size_t end, char sign, bool strips_line) const {
    std::string_view kept = rest_.substr(at_, end - at_);
    if (sign == '-') {
      size_t stop = kept.size();
      while (stop > 0) {
        size_t before = stop;
        if (!is_space(previous_character(kept, before))) break;
        stop = before;
      }
      return kept.substr(0, stop);
    }
    if (sign == '+' || !strips_line) return kept;
    // lstrip_blocks: only blanks between the start of the line and the tag.
    const size_t line = kept.rfind('\n');
    const size_t begin = line == std::string_view::npos ? 0 : line + 1;
    if (begin == 0 && at_ > 0 && rest_[at_ - 1] != '\n') return kept;
    const std::string_view blanks = kept.substr(begin);
    return skip_spaces(at_ + begin) >= end && !blanks.empty() ? kept.substr(0, begin) : kept;
  }

  void add_text(std::string_view text) {
    if (!text.empty()) add(Token::Kind::text, std::string(text));
  }

  /// Text up to the next tag, and that tag.
  Status text() {
    const size_t tag = find_tag(at_);
    if (tag == rest_.size()) {
      add_text(rest_.substr(at_));
      advance(tag);
      return {};
    }
    const char kind = rest_[tag + 1];
    const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    add_text(before_tag(tag, sign, kind != '{'));
    advance(tag + 2 + (has_sign ? 1 : 0));
    if (kind == '#') return comment();
    if (kind == '%' && begins_raw()) return raw();
    const bool print = kind == '{';
    add(print ? Token::Kind::print_begin : Token::Kind::block_begin, "");
    return inside(print);
  }

  /// Behind "-%}" all white space goes, behind "%}" and "#}" one line end (trim_blocks).
  size_t behind_end(size_t at, char sign, bool trims_line) const {
    if (sign == '-') return skip_spaces(at);
    return trims_line && sign != '+' && at < rest_.size() && rest_[at] == '\n' ? at + 1 : at;
  }

  Status comment() {
    const size_t end = rest_.find("#}", at_);
    if (end == std::string_view::npos)
      return fail(Code::bad_request, "the comment that starts here has no end '#}}'");
    const char sign = end > at_ ? rest_[end - 1] : '\0';
    advance(behind_end(end + 2, sign, true));
    return {};
  }

  /// The end of "raw %}" with its sign, or npos.
  size_t match_word_tag(size_t at, std::string_view word, char& sign) const {
    at = skip_spaces(at);
    if (!rest_.substr(at).starts_with(word)) return std::string_view::npos;
    at = skip_spaces(at + word.size());
    sign = at < rest_.size() ? rest_[at] : '\0';
    if (sign == '-' || sign == '+') ++at;
    return rest_.substr(at).starts_with("%}") ? at + 2 : std::string_view::npos;
  }

  bool begins_raw() const {
    char sign = '\0';
    return match_word_tag(at_, "raw", sign) != std::string_view::npos && sign != '+';
  }

  Status raw() {
    char sign = '\0';
    const size_t begin = match_word_tag(at_, "raw", sign);
    advance(behind_end(begin, sign, false));
    for (size_t tag = at_; (tag = rest_.find("{%", tag)) != std::string_view::npos; tag += 2) {
      const char left = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
      char right = '\0';
      const size_t end =
          match_word_tag(tag + (left == '-' || left == '+' ? 3 : 2), "endraw", right);
      if (end == std::string_view::npos) continue;
      add_text(before_tag(tag, left, true));
      advance(behind_end(end, right, true));
      return {};
    }
    return fail(Code::bad_request, "the block 'raw' that starts here has no 'endraw'");
  }

  /// The end of the tag at the current place, with its sign; false when there is none.
  bool at_end(bool print, size_t& behind) const {
    const char sign = rest_[at_];
    const bool has_sign = sign == '-' || (sign == '+' && !print);
    const size_t at = at_ + (has_sign ? 1 : 0);
    if (!rest_.substr(at).starts_with(print ? "}}" : "%}")) return false;
    behind = behind_end(at + 2, has_sign ? sign : '\0', !print);
    return true;
  }

  Status inside(bool print) {
    brackets_.clear();
    while (at_ < rest_.size()) {
      const size_t skipped = skip_spaces(at_);
      if (skipped != at_) {
        advance(skipped);
        continue;
      }
      size_t behind = 0;
      if (brackets_.empty() && at_end(print, behind)) {
        add(print ? Token::Kind::print_end : Token::Kind::block_end, "");
        advance(behind);
        return {};
      }
      SWITCHYARD_TRY(token());
    }
    return fail(Code::bad_request, "unexpected end of template inside a tag: expected '{}'",
                print ? "}}" : "%}");
  }

  Status token() {
    const char c = rest_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < rest_.size() && (is_name_start(rest_[end]) || is_digit(rest_[end]))) ++end;
      add(Token::Kind::name, std::string(rest_.substr(at_, end - at_)));
      advance(end);
      return {};
    }
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') {
      size_t end = at_;
      SWITCHYARD_ASSIGN(std::string value, read_string_literal(rest_, end));
      add(Token::Kind::string, std::move(value));
      advance(end);
      return {};
    }
    return symbol();
  }

  size_t digits(size_t at, std::string_view allowed) const {
    while (at < rest_.size()) {
      const size_t next = rest_[at] == '_' ? at + 1 : at;
      if (next >= rest_.size() || allowed.find(rest_[next]) == std::string_view::npos) break;
      at = next + 1;
    }
    return at;
  }

  Status number() {
    constexpr std::string_view kDecimal = "0123456789";
    size_t end = at_;
    Token::Kind kind = Token::Kind::integer;
    const char base = at_ + 1 < rest_.size() && rest_[at_] == '0' ? rest_[at_ + 1] : '\0';
    if (base == 'x' || base == 'X') {
      end = digits(at_ + 2, "0123456789abcdefABCDEF");
    } else if (base == 'b' || base == 'B') {
      end = digits(at_ + 2, "01");
    } else if (base == 'o' || base == 'O') {
      end = digits(at_ + 2, "01234567");
    } else {
      end = digits(at_, kDecimal);
      // In x.0.1 the numbers behind a point are names of items.
      if (at_ == 0 || rest_[at_ - 1] != '.') end = fraction(end, kind);
    }
    std::string text(rest_.substr(at_, end - at_));
    std::erase(text, '_');
    if (is_digit(base) && kind == Token::Kind::integer &&
        text.find_first_not_of('0') != std::string::npos)
      return fail(Code::bad_request, "the number '{}' starts with a zero", text);
    add(kind, std::move(text));
    advance(end);
    return {};
  }

  size_t fraction(size_t end, Token::Kind& kind) const {
    constexpr std::string_view kDecimal = "0123456789";
    if (end + 1 < rest_.size() && rest_[end] == '.' && is_digit(rest_[end + 1])) {
      end = digits(end + 1, kDecimal);
      kind = Token::Kind::real;
    }
    if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < rest_.size() && (rest_[exponent] == '+' || rest_[exponent] == '-')) ++exponent;
      if (exponent < rest_.size() && is_digit(rest_[exponent])) {
        end = digits(exponent, kDecimal);
        kind = Token::Kind::real;
      }
    }
    return end;
  }

  Status symbol() {
    constexpr std::string_view kSymbols[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!starts(symbol)) continue;
      SWITCHYARD_TRY(balance(symbol[0]));
      add(Token::Kind::symbol, std::string(symbol));
      advance(at_ + symbol.size());
      return {};
    }
    return fail(Code::bad_request, "unexpected character '{}' inside a tag",
                rest_.substr(at_, character_length(rest_, at_)));
  }

  /// Inside brackets "}}" is two brackets and no end of the tag.
  Status balance(char c) {
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return {};
    if (brackets_.empty()) return fail(Code::bad_request, "unexpected '{}'", c);
    if (brackets_.back() != c)
      return fail(Code::bad_request, "unexpected '{}', expected '{}'", c, brackets_.back());
    brackets_.pop_back();
    return {};
  }

 public:
  int line() const { return line_; }

 private:
  std::string source_;
  std::string_view rest_;  // all of source_
  size_t at_ = 0;
  int line_ = 1;
  std::string brackets_;  // the closing ones that are due
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  Lexer lexer(source);
  auto tokens = lexer.run();
  if (!tokens.ok()) return with_context(tokens.error(), fmt::format("line {}", lexer.line()));
  return tokens;
}

}  // namespace switchyard::text::jinja
