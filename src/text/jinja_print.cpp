// SPDX-License-Identifier: Apache-2.0
// Values as text: str() and repr() of Python, and json.dumps().
#include <algorithm>
#include <charconv>
#include <cmath>

#include <utf8proc.h>

#include "text/jinja_value.h"
#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

std::string repr_escape(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  const auto code = static_cast<uint32_t>(c);
  if (c < 0x100) return fmt::format("\\x{:02x}", code);
  return c < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

std::string json_escape(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  auto code = static_cast<uint32_t>(c);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  code -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
}

/// Appends `text`, in which the characters that `needs_escape` names are written by `escape`.
template <class Needs, class Escape>
void append_escaped(const Text& text, Text& out, Needs needs_escape, Escape escape) {
  const std::string_view view = text.view();
  size_t kept = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t begin = at;
    const char32_t c = next_character(view, at);
    if (!needs_escape(c)) continue;
    out.append(text, kept, begin);
    out.append(escape(c), text.trusted_at(begin));
    kept = at;
  }
  out.append(text, kept, view.size());
}

void append_string_repr(const Text& text, Text& out) {
  const bool has_single = text.view().find('\'') != std::string_view::npos;
  const bool has_double = text.view().find('"') != std::string_view::npos;
  const char32_t quote = has_single && !has_double ? '"' : '\'';
  const std::string_view mark = quote == '"' ? "\"" : "'";
  out.append(mark, true);
  append_escaped(
      text, out, [&](char32_t c) { return c == quote || c == '\\' || !is_printable(c); },
      [&](char32_t c) {
        if (c == quote || c == '\\') return std::string{'\\', static_cast<char>(c)};
        return repr_escape(c);
      });
  out.append(mark, true);
}

Status append_elements(const std::vector<Value>& elements, Text& out, Budget& budget) {
  for (size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) out.append(", ", true);
    SWITCHYARD_TRY(append_repr(elements[i], out, budget));
  }
  return {};
}

Status append_sequence_repr(const Sequence& sequence, Text& out, Budget& budget) {
  using Flavor = Sequence::Flavor;
  struct Brackets {
    std::string_view open, close;
  };
  constexpr Brackets kBrackets[] = {{"[", "]"},
                                    {"(", ")"},
                                    {},
                                    {},
                                    {"dict_keys([", "])"},
                                    {"dict_values([", "])"},
                                    {"dict_items([", "])"}};
  if (sequence.flavor == Flavor::generator)
    return fail(Code::bad_request,
                "a generator (what map and select give) cannot be printed: use |list");
  if (sequence.flavor == Flavor::range) {
    const std::string step = sequence.step == 1 ? "" : fmt::format(", {}", sequence.step);
    out.append(fmt::format("range({}, {}{})", sequence.start, sequence.stop, step), true);
    return {};
  }
  const Brackets& brackets = kBrackets[static_cast<size_t>(sequence.flavor)];
  out.append(brackets.open, true);
  SWITCHYARD_TRY(append_elements(sequence.elements, out, budget));
  if (sequence.flavor == Flavor::tuple && sequence.elements.size() == 1) out.append(",", true);
  out.append(brackets.close, true);
  return {};
}

Status append_dict_repr(const Dict& dict, Text& out, Budget& budget) {
  out.append("{", true);
  bool first = true;
  for (const Dict::Entry& entry : dict.entries()) {
    if (!std::exchange(first, false)) out.append(", ", true);
    SWITCHYARD_TRY(append_repr(entry.first, out, budget));
    out.append(": ", true);
    SWITCHYARD_TRY(append_repr(entry.second, out, budget));
  }
  out.append("}", true);
  return {};
}

}  // namespace

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  // The shortest digits that read back: d.ddde[+-]xx, from which Python's two layouts are made.
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  const std::string_view all(digits, static_cast<size_t>(end - digits));
  const size_t e = all.find('e');
  std::string mantissa(all.substr(0, e));
  int exponent = 0;
  const char* from = all.data() + e + 1;
  std::from_chars(*from == '+' ? from + 1 : from, end, exponent);
  if (exponent < -4 || exponent >= 16)
    return fmt::format("{}e{}{:02}", mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  const std::string sign = mantissa[0] == '-' ? "-" : "";
  std::erase(mantissa, '-');
  std::erase(mantissa, '.');
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + mantissa;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (mantissa.size() <= whole)
    return sign + mantissa + std::string(whole - mantissa.size(), '0') + ".0";
  return sign + mantissa.substr(0, whole) + "." + mantissa.substr(whole);
}

Status append_repr(const Value& value, Text& out, Budget& budget) {
  SWITCHYARD_TRY(budget.charge(1));
  switch (value.kind()) {
    case Value::Kind::undefined:
      out.append("Undefined", true);
      return {};
    case Value::Kind::none:
      out.append("None", true);
      return {};
    case Value::Kind::boolean:
      out.append(value.as_bool() ? "True" : "False", true);
      return {};
    case Value::Kind::integer:
      out.append(fmt::format("{}", value.as_int()), true);
      return {};
    case Value::Kind::real:
      out.append(real_repr(value.as_real()), true);
      return {};
    case Value::Kind::string:
      SWITCHYARD_TRY(budget.charge_text(value.view().size()));
      if (value.as_text().is_markup) out.append("Markup(", true);
      append_string_repr(value.as_text(), out);
      if (value.as_text().is_markup) out.append(")", true);
      return {};
    case Value::Kind::sequence:
      return append_sequence_repr(value.as_sequence(), out, budget);
    case Value::Kind::dict:
      return append_dict_repr(value.as_dict(), out, budget);
    case Value::Kind::object:
      break;
  }
  return fail(Code::bad_request, "a {} cannot be printed", value.type_name());
}

Status append_str(const Value& value, Text& out, Budget& budget) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return append_repr(value, out, budget);
  SWITCHYARD_TRY(budget.charge_text(value.view().size()));
  out.append(value.as_text());
  return {};
}

namespace {

class JsonDump {
 public:
  JsonDump(const JsonStyle& style, Text& out, Budget& budget)
      : style_(style), out_(out), budget_(budget) {}

  Status value(const Value& value, int level) {
    SWITCHYARD_TRY(budget_.charge(1));
    switch (value.kind()) {
      case Value::Kind::none:
        out_.append("null", true);
        return {};
      case Value::Kind::boolean:
        out_.append(value.as_bool() ? "true" : "false", true);
        return {};
      case Value::Kind::integer:
        out_.append(fmt::format("{}", value.as_int()), true);
        return {};
      case Value::Kind::real:
        real(value.as_real());
        return {};
      case Value::Kind::string:
        return string(value.as_text());
      case Value::Kind::sequence:
        if (value.as_sequence().flavor > Sequence::Flavor::tuple) break;
        return array(value.as_sequence().elements, level);
      case Value::Kind::dict:
        return object(value.as_dict(), level);
      case Value::Kind::undefined:
      case Value::Kind::object:
        break;
    }
    return fail(Code::bad_request, "Object of type {} is not JSON serializable", value.type_name());
  }

 private:
  void real(double number) {
    if (std::isfinite(number))
      out_.append(real_repr(number), true);
    else
      out_.append(std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity", true);
  }

  Status string(const Text& text) {
    SWITCHYARD_TRY(budget_.charge_text(text.size()));
    out_.append("\"", true);
    append_escaped(
        text, out_,
        [&](char32_t c) { return c < 0x20 || c == '"' || c == '\\' || (style_.ascii && c > 0x7E); },
        json_escape);
    out_.append("\"", true);
    return {};
  }

  Status newline(int level) {
    if (!style_.indented) return {};
    SWITCHYARD_TRY(budget_.charge_text(style_.indent.size() * static_cast<size_t>(level)));
    out_.append("\n", true);
    for (int i = 0; i < level; ++i) out_.append(style_.indent);
    return {};
  }

  Status before_item(bool first, int level) {
    if (!first) out_.append(style_.item_separator);
    return newline(level);
  }

  Status array(const std::vector<Value>& elements, int level) {
    out_.append("[", true);
    bool first = true;
    for (const Value& element : elements) {
      SWITCHYARD_TRY(before_item(std::exchange(first, false), level + 1));
      SWITCHYARD_TRY(value(element, level + 1));
    }
    if (!elements.empty()) SWITCHYARD_TRY(newline(level));
    out_.append("]", true);
    return {};
  }

  /// Keys that are no strings are written as JSON spells them, in quotes.
  Status key(const Value& key) {
    if (key.is_string()) return string(key.as_text());
    out_.append("\"", true);
    SWITCHYARD_TRY(value(key, 0));
    out_.append("\"", true);
    return {};
  }

  Result<std::vector<const Dict::Entry*>> ordered(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    bool strings = true;
    for (const Dict::Entry& entry : dict.entries()) {
      entries.push_back(&entry);
      strings = strings && entry.first.is_string();
    }
    if (!style_.sort_keys) return entries;
    if (!strings) return fail(Code::bad_request, "sort_keys needs keys that are all strings");
    std::sort(entries.begin(), entries.end(), [](const Dict::Entry* a, const Dict::Entry* b) {
      return a->first.view() < b->first.view();
    });
    return entries;
  }

  Status object(const Dict& dict, int level) {
    SWITCHYARD_ASSIGN(const auto entries, ordered(dict));
    out_.append("{", true);
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      SWITCHYARD_TRY(before_item(std::exchange(first, false), level + 1));
      SWITCHYARD_TRY(key(entry->first));
      out_.append(style_.key_separator);
      SWITCHYARD_TRY(value(entry->second, level + 1));
    }
    if (!entries.empty()) SWITCHYARD_TRY(newline(level));
    out_.append("}", true);
    return {};
  }

  const JsonStyle& style_;
  Text& out_;
  Budget& budget_;
};

}  // namespace

Status append_json(const Value& value, const JsonStyle& style, Text& out, Budget& budget) {
  return JsonDump(style, out, budget).value(value, 0);
}

}  // namespace switchyard::text::jinja
