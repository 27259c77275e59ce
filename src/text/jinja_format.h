// SPDX-License-Identifier: Apache-2.0
// Formatting of strings: '%s and %d' % (a, b), and '{} and {name}'.format(a, name=b).
// Widths, precisions and conversions beyond %s %d %i %r %% are refused.
#pragma once
#include "base/result.h"
#include "text/jinja_library.h"

namespace switchyard::text::jinja {

/// `values` is a tuple of as many values as there are conversions, or the only value.
Result<Value> format_percent(Interpreter& interpreter, const Text& pattern, const Value& values);
Result<Value> format_braces(Interpreter& interpreter, const Text& pattern,
                            const Arguments& arguments);

}  // namespace switchyard::text::jinja
