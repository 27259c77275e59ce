// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <algorithm>
#include <utility>

namespace switchyard::grammar {
namespace {

size_t shared_length(std::string_view a, std::string_view b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(at.first - a.begin());
}

}  // namespace

TokenTrie::TokenTrie(std::vector<std::string> bytes, std::vector<int32_t> ends)
    : bytes_(std::move(bytes)), ends_(std::move(ends)) {
  std::erase_if(ends_, [&](int32_t id) { return id < 0 || id >= num_tokens(); });
  for (int32_t id = 0; id < num_tokens(); ++id) {
    if (bytes_[static_cast<size_t>(id)].empty() || is_end(id)) continue;
    sorted_.push_back(id);
    longest_ = std::max(longest_, static_cast<int>(this->bytes(id).size()));
  }
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [&](int32_t a, int32_t b) { return this->bytes(a) < this->bytes(b); });
  std::vector<int32_t> path{0};  // the nodes of the text before, which is path.size() - 1 long
  nodes_.emplace_back();
  std::string_view before;
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const std::string_view text = this->bytes(sorted_[i]);
    for (size_t keep = shared_length(before, text); path.size() > keep + 1; path.pop_back())
      nodes_[static_cast<size_t>(path.back())].skip = size();
    for (size_t at = path.size() - 1; at < text.size(); ++at) {
      path.push_back(size());
      nodes_.push_back({0, static_cast<int32_t>(i), static_cast<uint8_t>(text[at])});
    }
    before = text;
  }
  for (const int32_t node : path) nodes_[static_cast<size_t>(node)].skip = size();
}

bool TokenTrie::is_end(int32_t token) const noexcept {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

std::span<const int32_t> TokenTrie::tokens(int32_t node) const {
  // Equal texts stand together, and a node is made by the first text that goes through it.
  const auto index = static_cast<size_t>(node);
  const auto first = static_cast<size_t>(nodes_[index].first_token);
  const size_t last = index + 1 < nodes_.size() ? static_cast<size_t>(nodes_[index + 1].first_token)
                                                : sorted_.size();
  return std::span(sorted_).subspan(first, last - first);
}

}  // namespace switchyard::grammar
