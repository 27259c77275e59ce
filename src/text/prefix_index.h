// SPDX-License-Identifier: Apache-2.0
// PrefixIndex: which of many words begin a text. A sorted list, narrowed byte by byte.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard::text {

class PrefixIndex {
 public:
  /// Words must not be empty; of equal words the first one counts.
  explicit PrefixIndex(std::vector<std::pair<std::string, int32_t>> words = {});

  bool empty() const noexcept { return words_.empty(); }
  /// False: no word begins with this byte.
  bool may_begin(char byte) const noexcept {
    const auto b = static_cast<unsigned char>(byte);
    return first_[b] != first_[b + 1U];
  }

  /// Calls visit(length, value) for each word that `text` begins with, the shortest first.
  template <class Visit>
  void visit_prefixes(std::string_view text, Visit&& visit) const {
    if (text.empty()) return;
    const auto byte = static_cast<unsigned char>(text[0]);
    size_t low = first_[byte], high = first_[byte + 1U];
    for (size_t depth = 1; low < high; ++depth) {
      // Among words that share `depth` bytes the one that ends there sorts first.
      if (words_[low].first.size() == depth) visit(depth, words_[low++].second);
      if (depth == text.size() || low == high) return;
      const auto [from, to] = std::equal_range(words_.begin() + static_cast<std::ptrdiff_t>(low),
                                               words_.begin() + static_cast<std::ptrdiff_t>(high),
                                               text[depth], ByteAt{depth});
      low = static_cast<size_t>(from - words_.begin());
      high = static_cast<size_t>(to - words_.begin());
    }
  }

 private:
  using Word = std::pair<std::string, int32_t>;
  struct ByteAt {
    size_t depth;
    unsigned byte(const Word& word) const { return static_cast<unsigned char>(word.first[depth]); }
    bool operator()(const Word& word, char c) const {
      return byte(word) < static_cast<unsigned char>(c);
    }
    bool operator()(char c, const Word& word) const {
      return static_cast<unsigned char>(c) < byte(word);
    }
  };

  std::vector<Word> words_;
  std::array<size_t, 257> first_{};  // where the words begin that start with a byte
};

}  // namespace switchyard::text
