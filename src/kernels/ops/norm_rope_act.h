// SPDX-License-Identifier: Apache-2.0
// The small operations between the GEMMs: RMS norm with the residual sum, and the preparation of q, k, v (norm or
// clip, rotary embedding, store into the cache).
#pragma once
#include <cstdint>

#include "kernels/op.h"
#include "tensor/dtype.h"

namespace switchyard {

/// x[t] += add_scale * add[t] (when add is given);  y[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * weight.
/// Source: Zhang and Sennrich 2019, arXiv 1910.07467.
struct RmsNorm {
  struct Problem {
    int64_t width = 0;  ///< D
    float eps = 1e-6f;
  };
  struct Args {
    float* x = nullptr;          ///< [T, D] f32: the residual stream
    const float* add = nullptr;  ///< [T, D] f32, or null
    float add_scale = 1;
    const float* weight = nullptr;  ///< [D] f32
    float* y = nullptr;             ///< [T, D] f32, or null: only the sum
    int64_t tokens = 0;             ///< T
  };
  using Packing = NoPacking;
};

enum class QkNorm : uint8_t {
  none,
  per_head,    ///< RMS over each head's Z values, weights [Z] (Qwen3)
  full_width,  ///< RMS over the whole projection, weights [H*Z] and [G*Z] (OLMoE)
};

/// From the fused projection to roped queries and cached keys and values, in the order: norm, clip, rope (half-split
/// pairs (i, i + r/2) of the first r values of a head).
struct PrepareQkv {
  struct Problem {
    int heads = 0, kv_heads = 0, head_dim = 0;  ///< H, G, Z
    int rotary_dim = 0;                         ///< r <= Z, even; 0: no rope
    QkNorm norm = QkNorm::none;
    float eps = 1e-6f;
    float clip = 0;         ///< clamp q, k, v to [-clip, clip] after the norm; 0: no clip (OLMoE)
    int block_tokens = 16;  ///< P
    DType cache = DType::bf16;  ///< f32 or bf16
  };
  struct Args {
    const float* qkv = nullptr;     ///< [T, (H + 2 G) Z] f32: q heads, k heads, v heads
    const float* q_norm = nullptr;  ///< [Z] or [H*Z] f32
    const float* k_norm = nullptr;  ///< [Z] or [G*Z] f32
    const float* cos = nullptr;     ///< [T, r/2] f32
    const float* sin = nullptr;     ///< [T, r/2] f32
    const int32_t* slot = nullptr;  ///< [T] i32: block * P + offset in the cache for each token
    float* q = nullptr;             ///< [T, H, Z] f32
    void* k_cache =
        nullptr;  ///< [blocks, G, Z, P] in Problem::cache, transposed as attention reads it
    void* v_cache = nullptr;  ///< [blocks, G, P, Z] in Problem::cache
    int64_t tokens = 0;       ///< T
  };
  using Packing = NoPacking;
};

}  // namespace switchyard
