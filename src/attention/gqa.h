// SPDX-License-Identifier: Apache-2.0
// Grouped-query attention as a sub-layer: project, norm or clip, rope, store, attend over the paged
// cache, project. Source: Ainslie et al. 2023, arXiv 2305.13245.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/arena.h"
#include "device/device.h"
#include "kernels/linear.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/norm_rope_act.h"

namespace switchyard::attention {

struct GqaSpec {
  int heads = 0, kv_heads = 0, head_dim = 0;  ///< H, G, Z
  bool qkv_bias = false, output_bias = false;
  QkNorm qk_norm = QkNorm::none;
  float clip = 0;   ///< clamp of q, k, v; 0: none
  int window = 0;   ///< positions seen, self included; 0: all
  float scale = 0;  ///< of q . k
  friend bool operator==(const GqaSpec&, const GqaSpec&) = default;
};

/// What all layers of a model share.
struct GqaShape {
  int64_t width = 0;  ///< D
  int rotary_dim = 0;
  float norm_eps = 1e-6f;
  int block_tokens = 16;  ///< P
  DType weight = DType::bf16, cache = DType::bf16;
  int64_t max_tokens = 0;
};

/// The step as attention sees it; every layer of a step shares it but for the caches.
struct StepView {
  const float* cos = nullptr;            ///< [T, r/2] f32
  const float* sin = nullptr;            ///< [T, r/2] f32
  const int32_t* slot = nullptr;         ///< [T] i32: block * P + offset of each token
  const int32_t* seq_offset = nullptr;   ///< [B + 1] i32
  const int32_t* context_len = nullptr;  ///< [B] i32
  const int32_t* block_table = nullptr;  ///< [B, max_blocks] i32
  int max_blocks = 0, sequences = 0;
  int64_t tokens = 0;  ///< T
};

class Gqa {
 public:
  static Result<Gqa> create(const GqaSpec& spec, const GqaShape& shape);

  Linear& qkv() noexcept { return qkv_; }        ///< [(H + 2 G) Z, D]: q, k, v rows
  Linear& output() noexcept { return output_; }  ///< [D, H Z]
  void set_norms(std::vector<float> q_norm, std::vector<float> k_norm);

  /// x [T, D] f32, normed; the result [T, D] f32 lives in the arena.
  const float* forward(const float* x, const StepView& view, void* k_cache, void* v_cache,
                       Arena& arena, const Stream& stream) const;
  int64_t room(int num_threads) const noexcept;
  int64_t weight_bytes() const noexcept { return qkv_.weight_bytes() + output_.weight_bytes(); }

 private:
  GqaSpec spec_;
  GqaShape shape_;
  Linear qkv_, output_;
  Bound<PrepareQkv> prepare_;
  Bound<Attention> attend_;
  std::vector<float> q_norm_, k_norm_;
};

}  // namespace switchyard::attention
