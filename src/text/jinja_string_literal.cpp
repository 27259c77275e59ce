// SPDX-License-Identifier: Apache-2.0
// Implements jinja_string_literal.h.
#include "text/jinja_string_literal.h"

#include <optional>

#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

/// `count` digits of that base at source[at], at least `least` of them; nothing when there are fewer.
std::optional<uint32_t> read_digits(std::string_view source, size_t& at, size_t least, size_t count,
                                    uint32_t base) {
  uint32_t value = 0;
  size_t read = 0;
  for (; read < count && at < source.size(); ++read, ++at) {
    const char c = source[at];
    const uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                           : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                           : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                                  : 16;
    if (digit >= base) break;
    value = value * base + digit;
  }
  if (read < least) return std::nullopt;
  return value;
}

Status append_code(std::string& out, std::optional<uint32_t> code) {
  if (!code) return fail(Code::bad_request, "a string has an escape with too few digits");
  if (*code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000))
    return fail(Code::bad_request, "a string has an escape for U+{:04X}, which is no character",
                *code);
  append_character(out, static_cast<char32_t>(*code));
  return {};
}

std::optional<char> simple_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return std::nullopt;
  }
}

/// The escape whose backslash is source[at].
Status read_escape(std::string_view source, size_t& at, std::string& out) {
  const char c = source[at + 1];
  at += 2;
  if (const auto simple = simple_escape(c)) {
    out += *simple;
    return {};
  }
  if (c == '\n') return {};  // the line goes on
  if (c == 'x') return append_code(out, read_digits(source, at, 2, 2, 16));
  if (c == 'u') return append_code(out, read_digits(source, at, 4, 4, 16));
  if (c == 'U') return append_code(out, read_digits(source, at, 8, 8, 16));
  if (c == 'N') return fail(Code::bad_request, "the escape \\N{{...}} is not supported: use \\u");
  --at;
  if (c >= '0' && c <= '7') return append_code(out, read_digits(source, at, 1, 3, 8));
  out += '\\';  // an unknown escape stays as it is
  return {};
}

}  // namespace

Result<std::string> read_string_literal(std::string_view source, size_t& at) {
  const char quote = source[at++];
  std::string value;
  while (at < source.size() && source[at] != quote) {
    if (source[at] != '\\') {
      value += source[at++];
    } else if (at + 1 < source.size()) {
      SWITCHYARD_TRY(read_escape(source, at, value));
    } else {
      break;
    }
  }
  if (at >= source.size())
    return fail(Code::bad_request, "a string that starts with {} has no end", quote);
  ++at;
  return value;
}

}  // namespace switchyard::text::jinja
