// SPDX-License-Identifier: Apache-2.0
#include "schedule/block_index.h"

#include <bit>

#include "base/check.h"

namespace switchyard::schedule {

BlockIndex::BlockIndex(int num_blocks)
    : entries_(std::bit_ceil(2 * static_cast<size_t>(num_blocks) + 1)),
      mask_(entries_.size() - 1) {}

size_t BlockIndex::place(const BlockKey& key) const noexcept {
  size_t at = home(key);
  while (entries_[at].block >= 0 && entries_[at].key != key) at = (at + 1) & mask_;
  return at;
}

int32_t BlockIndex::find(const BlockKey& key) const noexcept { return entries_[place(key)].block; }

void BlockIndex::insert(const BlockKey& key, int32_t block) {
  const size_t at = place(key);
  SWITCHYARD_CHECK(entries_[at].block < 0, "the key of block {} is that of block {}", block,
                   entries_[at].block);
  entries_[at] = {key, block};
}

void BlockIndex::erase(const BlockKey& key) {
  size_t hole = place(key);
  SWITCHYARD_CHECK(entries_[hole].block >= 0, "a key that is not there is erased");
  // Whoever lies behind the hole, and would be searched from a place before it, moves into it.
  for (size_t at = (hole + 1) & mask_; entries_[at].block >= 0; at = (at + 1) & mask_) {
    const size_t way = (at - home(entries_[at].key)) & mask_;
    if (way < ((at - hole) & mask_)) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole] = {};
}

}  // namespace switchyard::schedule
