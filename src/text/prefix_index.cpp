// SPDX-License-Identifier: Apache-2.0
// Bytes are compared as unsigned numbers, so that the order is that of memcmp.
#include "text/prefix_index.h"

#include "base/check.h"

namespace switchyard::text {

PrefixIndex::PrefixIndex(std::vector<Word> words) : words_(std::move(words)) {
  std::stable_sort(words_.begin(), words_.end(),
                   [](const Word& a, const Word& b) { return a.first < b.first; });
  words_.erase(std::unique(words_.begin(), words_.end(),
                           [](const Word& a, const Word& b) { return a.first == b.first; }),
               words_.end());
  SWITCHYARD_CHECK(words_.empty() || !words_.front().first.empty(), "an empty word");
  size_t at = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    first_[byte] = at;
    while (at < words_.size() && static_cast<unsigned char>(words_[at].first[0]) == byte) ++at;
  }
  first_[256] = at;
}

}  // namespace switchyard::text
