// SPDX-License-Identifier: Apache-2.0
#include "schedule/blocks.h"

#include <utility>

#include "base/check.h"

namespace switchyard::schedule {

BlockPool::BlockPool(int num_blocks) : index_(num_blocks) {
  SWITCHYARD_CHECK(num_blocks >= 0, "{} blocks", num_blocks);
  blocks_.resize(static_cast<size_t>(num_blocks));
  free_.reserve(static_cast<size_t>(num_blocks));
  for (int block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

const BlockPool::Block& BlockPool::at(int32_t block) const {
  SWITCHYARD_CHECK(block >= 0 && block < num_blocks(), "block {} of {}", block, num_blocks());
  return blocks_[static_cast<size_t>(block)];
}

bool BlockPool::take(int count, std::vector<int32_t>& to) {
  SWITCHYARD_CHECK(count >= 0, "{} blocks asked", count);
  if (count > num_available()) return false;
  for (int i = 0; i < count; ++i) to.push_back(take_one());
  return true;
}

int32_t BlockPool::take_one() {
  int32_t block = oldest_;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    unlink(block);
    index_.erase(at(block).key);
    at(block).has_key = false;
    ++evictions_;
  }
  at(block).references = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  Block& shared = at(block);
  SWITCHYARD_CHECK(shared.references > 0 || shared.has_key, "block {} is free and cannot be shared",
                   block);
  if (shared.references++ == 0) unlink(block);
}

void BlockPool::release(int32_t block) {
  Block& released = at(block);
  SWITCHYARD_CHECK(released.references > 0, "block {} is released twice", block);
  if (--released.references > 0) return;
  if (released.has_key) {
    link_newest(block);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::release(std::span<const int32_t> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) release(blocks[i]);
}

void BlockPool::publish(int32_t block, const BlockKey& key) {
  Block& published = at(block);
  SWITCHYARD_CHECK(published.references > 0 && !published.has_key, "block {} has {} owners{}",
                   block, published.references, published.has_key ? " and a key already" : "");
  if (index_.find(key) >= 0) return;
  index_.insert(key, block);
  published.key = key;
  published.has_key = true;
}

void BlockPool::forget(int32_t block) {
  Block& forgotten = at(block);
  if (!forgotten.has_key) return;
  index_.erase(forgotten.key);
  forgotten.has_key = false;
  if (forgotten.references > 0) return;
  unlink(block);
  free_.push_back(block);
}

int32_t& BlockPool::newer_link(int32_t block) { return block < 0 ? oldest_ : at(block).newer; }
int32_t& BlockPool::older_link(int32_t block) { return block < 0 ? newest_ : at(block).older; }

void BlockPool::link_newest(int32_t block) {
  Block& linked = at(block);
  linked.older = newest_;
  linked.newer = -1;
  newer_link(newest_) = block;
  newest_ = block;
  ++num_cached_;
}

void BlockPool::unlink(int32_t block) {
  const Block& unlinked = at(block);
  newer_link(unlinked.older) = unlinked.newer;
  older_link(unlinked.newer) = unlinked.older;
  --num_cached_;
}

}  // namespace switchyard::schedule
