// SPDX-License-Identifier: Apache-2.0
// Implements jinja_string_tools.h.
#include "text/jinja_string_tools.h"

#include <utf8proc.h>

#include "text/jinja_interpreter.h"
#include "text/unicode.h"

namespace switchyard::text::jinja {
namespace {

/// An empty pattern stands in front of every character and at the end.
Result<Value> insert_between(Interpreter& interpreter, const Text& text, const Text& with,
                             int64_t count) {
  const std::vector<size_t> offsets = character_offsets(text.view());
  SWITCHYARD_TRY(interpreter.budget().charge(offsets.size()));
  Text out;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (count < 0 || static_cast<int64_t>(i) < count) out.append(with);
    if (i + 1 < offsets.size()) out.append(text, offsets[i], offsets[i + 1]);
    SWITCHYARD_TRY(interpreter.check_length(out.size()));
  }
  return interpreter.make_string(std::move(out));
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

Result<Value> replace_text(Interpreter& interpreter, const Text& text, const Text& old,
                           const Text& with, int64_t count) {
  if (old.empty()) return insert_between(interpreter, text, with, count);
  Text out;
  size_t at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t found = text.view().find(old.view(), at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(with);
    at = found + old.size();
    SWITCHYARD_TRY(interpreter.budget().charge(1));
    SWITCHYARD_TRY(interpreter.check_length(out.size()));
  }
  out.append(text, at, text.size());
  return interpreter.make_string(std::move(out));
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view view = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t end = at;
    const char32_t c = next_character(view, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < view.size() && view[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < view.size()) lines.push_back(text.slice(begin, view.size()));
  return lines;
}

Result<Value> join_texts(Interpreter& interpreter, const Text& separator,
                         const std::vector<Value>& items) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    SWITCHYARD_TRY(append_str(items[i], out, interpreter.budget()));
    SWITCHYARD_TRY(interpreter.check_length(out.size()));
  }
  return interpreter.make_string(std::move(out));
}

bool has_only_case(std::string_view text, bool upper) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (!is_cased(c)) continue;
    const bool is_upper =
        utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LU;
    const bool is_lower =
        utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LL;
    if (upper ? !is_upper : !is_lower) return false;
    found = true;
  }
  return found;
}

}  // namespace switchyard::text::jinja
