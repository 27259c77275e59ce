// SPDX-License-Identifier: Apache-2.0
// The paged cache of keys and values: one pool of blocks, the same block numbers in every layer.
// Source: Kwon et al. 2023, arXiv 2309.06180.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/storage.h"

namespace switchyard::attention {

struct CacheSpec {
  int layers = 0, kv_heads = 0, head_dim = 0, block_tokens = 16;  ///< L, G, Z, P
  DType dtype = DType::bf16;
  int64_t num_blocks = 0;

  /// Bytes of one block's keys and values over all layers.
  int64_t block_bytes() const noexcept {
    return 2 * int64_t{layers} * kv_heads * block_tokens * head_dim * dtype_bytes(dtype);
  }
};

class PagedCache {
 public:
  /// Errors: Code::out_of_memory naming the sum.
  static Result<PagedCache> create(const CacheSpec& spec);

  void* k(int layer) const noexcept;  ///< [num_blocks, G, Z, P]
  void* v(int layer) const noexcept;  ///< [num_blocks, G, P, Z]
  int64_t bytes() const noexcept { return storage_.size(); }
  const CacheSpec& spec() const noexcept { return spec_; }

 private:
  CacheSpec spec_;
  Storage storage_;
  int64_t layer_bytes_ = 0;  // of k, or of v
};

}  // namespace switchyard::attention
