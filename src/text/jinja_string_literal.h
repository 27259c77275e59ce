// SPDX-License-Identifier: Apache-2.0
// String literals of expressions: 'text' and "text" with the escapes of Python.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace switchyard::text::jinja {

/// The value of the literal whose quote is source[at]; moves `at` behind its end.
/// Errors: Code::bad_request.
Result<std::string> read_string_literal(std::string_view source, size_t& at);

}  // namespace switchyard::text::jinja
