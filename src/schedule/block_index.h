// SPDX-License-Identifier: Apache-2.0
// BlockIndex: from the key of a full block to its number. All room is taken once, so that a warm step allocates nothing:
// an open table, at most half full, searched from the place that the key names. Keys come out of a hash, so their low
// bits are as good as any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/block_key.h"

namespace switchyard::schedule {

class BlockIndex {
 public:
  /// Room for num_blocks entries.
  explicit BlockIndex(int num_blocks);

  /// The block of that key, or -1.
  int32_t find(const BlockKey& key) const noexcept;
  /// The key must not be there, nor the table full (checked).
  void insert(const BlockKey& key, int32_t block);
  /// The key must be there (checked).
  void erase(const BlockKey& key);

 private:
  struct Entry {
    BlockKey key;
    int32_t block = -1;  // -1: empty
  };
  size_t home(const BlockKey& key) const noexcept { return key.low & mask_; }
  /// Where the key is, or the empty place where it would be.
  size_t place(const BlockKey& key) const noexcept;

  std::vector<Entry> entries_;
  size_t mask_;
};

}  // namespace switchyard::schedule
