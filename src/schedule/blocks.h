// SPDX-License-Identifier: Apache-2.0
// BlockPool: who owns the blocks of the paged KV cache, and what they still hold. A block holds P positions of every
// layer. It is
//   used    owned by one or more sequences (counted by reference; common prefixes are shared),
//   cached  owned by nobody, but its contents have a key and may be shared again, or
//   free    owned by nobody and empty.
//
// Only full blocks that were computed get a key, so that a block that is still written is never shared. Blocks are
// handed out free ones first, then the cached one that was given up longest ago (LRU). The pool knows numbers, not
// memory: block b is row b of the cache that attention owns.
// Cost: everything is O(1) for each block; no allocation after construction.
// Source: Kwon et al. 2023, arXiv 2309.06180.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "schedule/block_index.h"
#include "schedule/block_key.h"

namespace switchyard::schedule {

class BlockPool {
 public:
  /// All blocks [0, num_blocks) are free; the lowest number is handed out first.
  explicit BlockPool(int num_blocks);

  int num_blocks() const noexcept { return static_cast<int>(blocks_.size()); }
  int num_free() const noexcept { return static_cast<int>(free_.size()); }
  int num_cached() const noexcept { return num_cached_; }
  int num_used() const noexcept { return num_blocks() - num_available(); }
  /// What take() could hand out: free and cached.
  int num_available() const noexcept { return num_free() + num_cached_; }
  /// Cached blocks that were emptied to be handed out.
  uint64_t evictions() const noexcept { return evictions_; }

  /// Appends `count` blocks, each with one reference and without a key, to `to`; all or none. False when fewer are
  /// available.
  [[nodiscard]] bool take(int count, std::vector<int32_t>& to);
  /// One more owner of a block that is used or cached (checked).
  void share(int32_t block);
  /// One owner less. A block without owners is cached if it has a key, else free. Releasing an unused block is our own
  /// bug (checked).
  void release(int32_t block);
  /// The blocks of one sequence, in order of position: the last ones will be evicted first.
  void release(std::span<const int32_t> blocks);

  /// Names what a used block holds. Nothing happens when another block holds the same already.
  void publish(int32_t block, const BlockKey& key);
  /// The contents are worth nothing: nobody new may share them.
  void forget(int32_t block);
  /// The block that holds what the key names, or -1.
  int32_t find(const BlockKey& key) const noexcept { return index_.find(key); }

  int references(int32_t block) const { return at(block).references; }

 private:
  struct Block {
    int references = 0;
    bool has_key = false;
    int32_t older = -1, newer = -1;  // neighbours in the list of cached blocks
    BlockKey key;
  };
  const Block& at(int32_t block) const;
  Block& at(int32_t block) { return const_cast<Block&>(std::as_const(*this).at(block)); }
  int32_t take_one();
  void link_newest(int32_t block);
  void unlink(int32_t block);
  int32_t& newer_link(int32_t block);
  int32_t& older_link(int32_t block);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;  // a stack: the last one is handed out next
  BlockIndex index_;
  int32_t oldest_ = -1, newest_ = -1;  // ends of the list of cached blocks
  int num_cached_ = 0;
  uint64_t evictions_ = 0;
};

/// Blocks that `tokens` positions take.
constexpr int blocks_for(int64_t tokens, int block_tokens) noexcept {
  return static_cast<int>((tokens + block_tokens - 1) / block_tokens);
}

}  // namespace switchyard::schedule
