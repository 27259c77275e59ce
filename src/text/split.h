// SPDX-License-Identifier: Apache-2.0
// Cutting a text at the matches of a pattern, in the six ways of the "tokenizers" library.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace switchyard::text {

/// What becomes of the matches ("-" in "a-b"): Removed a b, Isolated a - b, MergedWithPrevious a- b,
/// MergedWithNext a -b, Contiguous as Isolated but "--" stays in one piece.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

std::optional<SplitBehavior> find_split_behavior(std::string_view name);

/// The pieces of a text of `size` bytes, in order. With `invert` the matches and the gaps between
/// them change places.
std::vector<Span> split(size_t size, const std::vector<Span>& matches, SplitBehavior behavior,
                        bool invert = false);

}  // namespace switchyard::text
