// SPDX-License-Identifier: Apache-2.0
// BlockPool: which blocks of the paged KV cache are free. A block holds P positions of every layer.
// Blocks are counted by reference, so that sequences may share the blocks of a common prefix.
//
// The pool knows numbers, not memory: block b is row b of the cache that attention owns.
// Source: Kwon et al. 2023, arXiv 2309.06180.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace switchyard::schedule {

class BlockPool {
 public:
  /// All blocks [0, num_blocks) are free; the lowest number is handed out first.
  explicit BlockPool(int num_blocks);

  int num_blocks() const noexcept { return static_cast<int>(references_.size()); }
  int num_free() const noexcept { return static_cast<int>(free_.size()); }

  /// Appends `count` free blocks, each with one reference, to `to`; all or none. False when fewer
  /// are free.
  [[nodiscard]] bool take(int count, std::vector<int32_t>& to);
  /// One more owner of a block that is in use (checked).
  void share(int32_t block);
  /// One owner less; a block without owners is free again. Releasing a free block is our own bug
  /// (checked).
  void release(int32_t block);
  void release(std::span<const int32_t> blocks);

  int references(int32_t block) const;

 private:
  std::vector<int32_t> references_;  // [blocks] owners of each block
  std::vector<int32_t> free_;        // a stack: the last one is handed out next
};

/// Blocks that `tokens` positions take.
constexpr int blocks_for(int64_t tokens, int block_tokens) noexcept {
  return static_cast<int>((tokens + block_tokens - 1) / block_tokens);
}

}  // namespace switchyard::schedule
