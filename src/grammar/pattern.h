// SPDX-License-Identifier: Apache-2.0
// The regular expressions of "pattern" (ECMA-262), as far as they are regular and this program knows them; the rest is
// refused by name.
//
//   known    literals, . [a-z] [^a-z] \d \D \w \W \s \S \n \r \t \f \v \0 \xHH \uHHHH, groups (...) (?:...), | * + ?
//            {m} {m,} {m,n}, their lazy forms (the same language), ^ and $ at the ends of the whole pattern
//   refused  look-around, back references, named groups, \b \B, \p, \c, anchors elsewhere
// As in JSON Schema a pattern without anchors may match anywhere in the string.
#pragma once
#include <string_view>

#include "grammar/regular.h"

namespace switchyard::grammar {

/// A whole JSON string with its quotes, plainly spelled (characters.h), whose characters match. Errors: Code::bad_request
/// with the character's place.
Result<Fragment> add_pattern_string(Nfa& nfa, std::string_view pattern);

}  // namespace switchyard::grammar
