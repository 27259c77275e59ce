// SPDX-License-Identifier: Apache-2.0
// Attention over a paged cache: causal, grouped queries (query head h reads kv head h / (H / G)), prefill, decode and
// mixed batches alike. Keys and values of the step's own tokens are already in the cache.
//
//   out[t, h] = sum_j softmax_j(scale * q[t, h] . k[j, g]) v[j, g]    over cached positions j <= position(t), and
//                                                                     j > position(t) - window when window > 0
// Keys are visited in ascending order, in fixed runs, and the softmax starts anew at fixed spans of absolute positions,
// merged in order. So bits do not depend on the thread count, and with `deterministic` a token's result does not depend
// on what else is in the step either.
// Source: Vaswani et al. 2017, arXiv 1706.03762; Kwon et al. 2023, arXiv 2309.06180 (paging); Milakov and Gimelshein
// 2018, arXiv 1805.02867 (online softmax).
#pragma once
#include <cstdint>

#include "kernels/op.h"
#include "tensor/dtype.h"

namespace switchyard {

struct Attention {
  struct Problem {
    int heads = 0, kv_heads = 0, head_dim = 0;  ///< H, G, Z
    int block_tokens = 16;                      ///< P
    DType cache = DType::bf16;                  ///< f32 or bf16
    int window = 0;                             ///< positions seen, self included; 0: all
    float scale = 0;                            ///< of q . k, usually Z^-1/2
    int64_t max_tokens = 0;                     ///< most T of one call
    bool deterministic = false;                 ///< a token's bits depend on the token alone
  };
  struct Args {
    const float* q = nullptr;  ///< [T, H, Z] f32, roped
    /// [blocks, G, Z, P] in Problem::cache: transposed, so that a vector holds one value of many keys and scores
    /// need no sums across lanes.
    const void* k_cache = nullptr;
    const void* v_cache = nullptr;  ///< [blocks, G, P, Z]
    const int32_t* seq_offset =
        nullptr;  ///< [B + 1] i32: sequence b owns tokens [seq_offset[b], seq_offset[b + 1])
    const int32_t* context_len = nullptr;  ///< [B] i32: positions cached before this step
    const int32_t* block_table = nullptr;  ///< [B, max_blocks] i32
    int max_blocks = 0;
    int sequences = 0;     ///< B
    float* out = nullptr;  ///< [T, H, Z] f32
  };
  using Packing = NoPacking;
};

}  // namespace switchyard
