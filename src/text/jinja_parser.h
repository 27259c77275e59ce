// SPDX-License-Identifier: Apache-2.0
// Parser: tokens to a syntax tree. Unknown tags are refused, unknown filters and tests too unless an "if"
// stands around them, in which case they are errors when they are reached (as in the reference).
#pragma once
#include <string_view>

#include "base/result.h"
#include "text/jinja_ast.h"

namespace switchyard::text::jinja {

/// Errors: Code::bad_request, with the line.
Result<Body> parse(std::string_view source);

}  // namespace switchyard::text::jinja
