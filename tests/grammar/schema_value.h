// SPDX-License-Identifier: Apache-2.0
// Random schemas of the supported kind, values that were made for a schema, and small changes to values.
#pragma once
#include <random>

#include "base/json.h"

namespace switchyard::grammar {

using Random = std::mt19937;

/// With $defs "a" and "b", which may refer to each other.
Json draw_schema(Random& random);
/// A value made by the schema, in the order of its properties; not always valid (allOf, depth).
Json draw_value(const Json& schema, const Json& document, Random& random, int depth = 0);
/// The value with one thing changed somewhere.
Json mutated(const Json& value, Random& random);

}  // namespace switchyard::grammar
