// SPDX-License-Identifier: Apache-2.0
// First the text as a row of parts, each a match or a gap; then the parts are joined or dropped.
#include "text/split.h"

#include <algorithm>
#include <array>
#include <utility>

namespace switchyard::text {
namespace {

struct Part {
  Span span;
  bool match = false;
};

std::vector<Part> parts_of(size_t size, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  for (const Span& match : matches) {
    if (match.begin > done) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) parts.push_back({{done, size}, invert});
  return parts;
}

}  // namespace

std::optional<SplitBehavior> find_split_behavior(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  return std::nullopt;
}

std::vector<Span> split(size_t size, const std::vector<Span>& matches, SplitBehavior behavior,
                        bool invert) {
  std::vector<Part> parts = parts_of(size, matches, invert);
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Span> out;
  bool after_match = false;
  for (const Part& part : parts) {
    if (behavior == SplitBehavior::removed && part.match) continue;
    // A match joins the gap beside it, yet not a second match; contiguous parts join their like.
    const bool merging = backwards || behavior == SplitBehavior::merged_with_previous
                             ? part.match && !after_match
                             : behavior == SplitBehavior::contiguous && part.match == after_match;
    after_match = part.match;
    if (!merging || out.empty()) {
      out.push_back(part.span);
    } else if (backwards) {
      out.back().begin = part.span.begin;
    } else {
      out.back().end = part.span.end;
    }
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace switchyard::text
