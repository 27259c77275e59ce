// SPDX-License-Identifier: Apache-2.0
// A literal is searched as it is: no escaping, no compiled code.
#include "text/pattern.h"

#include "text/json_fields.h"

namespace switchyard::text {

Result<Pattern> Pattern::read(const Json& json, const std::string& where) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  Pattern pattern;
  if (fields.find("String") != nullptr) {
    SWITCHYARD_ASSIGN(std::string text, fields.string("String"));
    if (text.empty()) return fail(Code::bad_file, "{} is empty", fields.at("String"));
    pattern.what_ = std::move(text);
  } else if (fields.find("Regex") != nullptr) {
    SWITCHYARD_ASSIGN(const std::string text, fields.string("Regex"));
    Result<Regex> regex = Regex::compile(text);
    if (!regex.ok()) return with_context(std::move(regex).error(), fields.at("Regex"));
    pattern.what_ = *std::move(regex);
  } else {
    return fail(Code::bad_file, "{}: expected a String or a Regex", where);
  }
  SWITCHYARD_TRY(fields.finish());
  return pattern;
}

Result<std::vector<Span>> Pattern::find_all(std::string_view text) const {
  if (const Regex* regex = std::get_if<Regex>(&what_)) return regex->find_all(text);
  const std::string& word = *literal();
  std::vector<Span> matches;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at)) {
    matches.push_back({at, at + word.size()});
    at += word.size();
  }
  return matches;
}

}  // namespace switchyard::text
