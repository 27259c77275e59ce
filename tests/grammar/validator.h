// SPDX-License-Identifier: Apache-2.0
// A plain validator, to compare the grammar with: it looks at values and knows nothing of automata. And a reader of JSON that,
// unlike the program's, takes an object that has a key twice, as a grammar cannot forbid other properties to repeat.
#pragma once
#include <optional>
#include <string_view>

#include "base/json.h"

namespace switchyard::grammar {

/// Of the keywords that tests/grammar/schema_value.h draws. `document` is where $ref begins.
bool is_valid(const Json& value, const Json& schema, const Json& document);

std::optional<Json> read_json(std::string_view text);

}  // namespace switchyard::grammar
