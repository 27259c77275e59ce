// SPDX-License-Identifier: Apache-2.0
#include "attention/cache.h"

#include "base/check.h"

namespace switchyard::attention {

Result<PagedCache> PagedCache::create(const CacheSpec& spec) {
  PagedCache cache;
  cache.spec_ = spec;
  const int64_t block = spec.block_bytes();
  int64_t total = 0;
  if (__builtin_mul_overflow(block, spec.num_blocks, &total)) {
    return fail(Code::out_of_memory, "key/value cache: {} blocks of {} bytes cannot exist",
                spec.num_blocks, block);
  }
  cache.layer_bytes_ = spec.layers > 0 ? total / (2 * spec.layers) : 0;
  Result<Storage> storage = Storage::allocate(total);
  if (!storage.ok()) {
    return with_context(std::move(storage).error(),
                        fmt::format("key/value cache of {} blocks of {} bytes ({} tokens)",
                                    spec.num_blocks, block, spec.num_blocks * spec.block_tokens));
  }
  cache.storage_ = *std::move(storage);
  return cache;
}

void* PagedCache::k(int layer) const noexcept {
  SWITCHYARD_DCHECK(layer >= 0 && layer < spec_.layers, "layer {}", layer);
  return storage_.data() + 2 * layer * layer_bytes_;
}

void* PagedCache::v(int layer) const noexcept {
  SWITCHYARD_DCHECK(layer >= 0 && layer < spec_.layers, "layer {}", layer);
  return storage_.data() + (2 * layer + 1) * layer_bytes_;
}

}  // namespace switchyard::attention
