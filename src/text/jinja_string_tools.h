// SPDX-License-Identifier: Apache-2.0
// What filters and methods of strings share.
#pragma once
#include <vector>

#include "text/jinja_library.h"

namespace switchyard::text::jinja {

/// str.replace; a negative count replaces all.
Result<Value> replace_text(Interpreter& interpreter, const Text& text, const Text& old,
                           const Text& with, int64_t count);

/// str.splitlines.
std::vector<Text> split_lines(const Text& text, bool keep_ends);

/// The filter join: every item as str() writes it.
Result<Value> join_texts(Interpreter& interpreter, const Text& separator,
                         const std::vector<Value>& items);

/// str.islower (or isupper): at least one cased character, and none of the other case.
bool has_only_case(std::string_view text, bool upper);

}  // namespace switchyard::text::jinja
