// SPDX-License-Identifier: Apache-2.0
// Old files say add_prefix_space where new ones say prepend_scheme.
#include "text/metaspace.h"

#include "text/unicode.h"

namespace switchyard::text {

Result<Metaspace> Metaspace::read(Fields& fields) {
  Metaspace made;
  SWITCHYARD_ASSIGN(const std::string mark, fields.string("replacement"));
  if (mark.empty() || character_length(mark, 0) != mark.size()) {
    return fail(Code::bad_file, "{}: expected one character, found \"{}\"",
                fields.at("replacement"), mark);
  }
  size_t at = 0;
  made.mark = next_character(mark, at);
  SWITCHYARD_ASSIGN(const std::string scheme, fields.string("prepend_scheme", "always"));
  if (scheme == "always") {
    made.prepend = Prepend::always;
  } else if (scheme == "first") {
    made.prepend = Prepend::first;
  } else if (scheme == "never") {
    made.prepend = Prepend::never;
  } else {
    return fail(Code::unsupported, "{}: \"{}\" is not known", fields.at("prepend_scheme"), scheme);
  }
  const bool named = fields.find("prepend_scheme") != nullptr;
  SWITCHYARD_ASSIGN(const bool prefix, fields.boolean("add_prefix_space", true));
  if (!prefix && named && made.prepend != Prepend::never) {
    return fail(Code::bad_file, "{}: add_prefix_space is false, but prepend_scheme is \"{}\"",
                fields.where(), scheme);
  }
  if (!prefix) made.prepend = Prepend::never;
  SWITCHYARD_ASSIGN(made.split, fields.boolean("split", true));
  fields.ignore({"str_rep"});
  return made;
}

void Metaspace::mark_spaces(std::string& text, bool at_start) const {
  std::string out;
  const bool wanted = prepend == Prepend::always || (prepend == Prepend::first && at_start);
  size_t start = 0;
  const bool marked =
      text.starts_with(' ') || (!text.empty() && next_character(text, start) == mark);
  if (wanted && !marked) append_character(out, mark);
  for (const char c : text) {
    if (c == ' ') {
      append_character(out, mark);
    } else {
      out += c;
    }
  }
  text = std::move(out);
}

std::string Metaspace::unmark(std::string_view token, bool first) const {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const char32_t character = next_character(token, at);
    if (character != mark) {
      append_character(out, character);
    } else if (!first || prepend == Prepend::never) {
      out += ' ';
    }
  }
  return out;
}

}  // namespace switchyard::text
