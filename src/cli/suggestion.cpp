// SPDX-License-Identifier: Apache-2.0
// Source of the distance: Damerau 1964, in the form that edits no part of a word twice.
#include "cli/suggestion.h"

#include <algorithm>

namespace switchyard::cli {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> distance(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      int best = std::min(
          {distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = std::min(best, distance[i - 2][j - 2] + 1);
      distance[i][j] = best;
    }
  }
  return distance[a.size()][b.size()];
}

std::optional<std::string> find_nearest(std::string_view word,
                                        const std::vector<std::string>& known) {
  constexpr size_t kLongestWord =
      64;  // longer ones are no slip of a known word, and the table is quadratic
  if (word.size() > kLongestWord) return std::nullopt;
  const int limit = std::max(2, static_cast<int>(word.size()) / 3);
  const std::string* nearest = nullptr;
  int least = limit + 1;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = &candidate;
  }
  if (nearest == nullptr) return std::nullopt;
  return *nearest;
}

}  // namespace switchyard::cli
