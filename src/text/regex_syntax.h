// SPDX-License-Identifier: Apache-2.0
// From the regular expressions of tokenizer.json (Oniguruma, Ruby syntax) to those of PCRE2.
//
// Both read most of a pattern alike. Where they differ silently, the pattern is rewritten:
//   \s \S            PCRE2 adds U+180E                  -> the 25 characters of White_Space
//   \w \W \b \B      PCRE2 leaves out marks             -> letters, marks, digits, connectors
//   \h \v \uHHHH     other meanings                     -> spelled out
//   [A&&[^B]]        PCRE2 reads two ampersands         -> (?:(?![B])[A])
//   {,n}             PCRE2 reads text                   -> {0,n}
// and what cannot be rewritten is refused by name.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace switchyard::text {

/// `pattern` must be valid UTF-8.
Result<std::string> to_pcre2(std::string_view pattern);

}  // namespace switchyard::text
