// SPDX-License-Identifier: Apache-2.0
#include "schedule/blocks.h"

#include "base/check.h"

namespace switchyard::schedule {

BlockPool::BlockPool(int num_blocks) {
  SWITCHYARD_CHECK(num_blocks >= 0, "{} blocks", num_blocks);
  references_.assign(static_cast<size_t>(num_blocks), 0);
  free_.reserve(static_cast<size_t>(num_blocks));
  for (int block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

bool BlockPool::take(int count, std::vector<int32_t>& to) {
  SWITCHYARD_CHECK(count >= 0, "{} blocks asked", count);
  if (count > num_free()) return false;
  for (int i = 0; i < count; ++i) {
    const int32_t block = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(block)] = 1;
    to.push_back(block);
  }
  return true;
}

void BlockPool::share(int32_t block) {
  SWITCHYARD_CHECK(references(block) > 0, "block {} is free and cannot be shared", block);
  ++references_[static_cast<size_t>(block)];
}

void BlockPool::release(int32_t block) {
  SWITCHYARD_CHECK(references(block) > 0, "block {} is released twice", block);
  if (--references_[static_cast<size_t>(block)] == 0) free_.push_back(block);
}

void BlockPool::release(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) release(block);
}

int BlockPool::references(int32_t block) const {
  SWITCHYARD_CHECK(block >= 0 && block < num_blocks(), "block {} of {}", block, num_blocks());
  return references_[static_cast<size_t>(block)];
}

}  // namespace switchyard::schedule
