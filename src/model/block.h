// SPDX-License-Identifier: Apache-2.0
// One layer block: norm, attention, norm, MoE (or a dense feed-forward), each added to the residual
// stream.
#pragma once
#include <optional>
#include <vector>

#include "attention/gqa.h"
#include "base/result.h"
#include "kernels/ops/norm_rope_act.h"
#include "kernels/ops/permute.h"
#include "model/config.h"
#include "moe/layer.h"

namespace switchyard::model {

/// What all blocks of a model share.
struct BlockShape {
  DType weight = DType::bf16;
  int block_tokens = 16;
  moe::Limits limits;
};

class Block {
 public:
  static Result<Block> create(const ModelConfig& config, const BlockSpec& spec,
                              const BlockShape& shape);

  attention::Gqa& attention() noexcept { return attention_; }
  moe::Layer* moe() noexcept { return moe_ ? &*moe_ : nullptr; }
  const moe::Layer* moe() const noexcept { return moe_ ? &*moe_ : nullptr; }
  moe::Experts* dense() noexcept { return dense_ ? &*dense_ : nullptr; }
  void set_norms(std::vector<float> attention_norm, std::vector<float> ffn_norm);

  /// x [T, D] f32, the residual stream, in place. A MoE block returns its routing (arrays in the
  /// arena, until the caller rewinds it).
  std::optional<Routing> forward(float* x, const attention::StepView& view, void* k_cache,
                                 void* v_cache, const moe::Step& step);
  int64_t room(const moe::Limits& limits) const noexcept;

 private:
  void norm(float* x, const float* add, const std::vector<float>& weight, float* y, int64_t tokens,
            const moe::Step& step) const;

  int64_t width_ = 0;
  float residual_scale_ = 1;
  std::vector<float> attention_norm_, ffn_norm_;  // [D]
  Bound<RmsNorm> rms_norm_;
  attention::Gqa attention_;
  std::optional<moe::Layer> moe_;
  std::optional<moe::Experts> dense_;
  Bound<Combine> add_dense_;  // only with dense_
};

}  // namespace switchyard::model
