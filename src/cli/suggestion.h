// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the known word that is nearest to an unknown one.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::cli {

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);

/// The nearest of the words, unless even that one is too far to be a slip.
std::optional<std::string> find_nearest(std::string_view word,
                                        const std::vector<std::string>& known);

}  // namespace switchyard::cli
