// SPDX-License-Identifier: Apache-2.0
#include "model/block.h"

#include <utility>

#include "kernels/select.h"

namespace switchyard::model {
namespace {

template <class Op>
std::span<std::byte> scratch(const Bound<Op>& op, const moe::Step& step) {
  return step.arena.take<std::byte>(op.workspace_bytes(step.stream.pool().num_threads()));
}

}  // namespace

Result<Block> Block::create(const ModelConfig& config, const BlockSpec& spec,
                            const BlockShape& shape) {
  Block block;
  block.width_ = config.width;
  block.residual_scale_ = config.residual_scale;
  SWITCHYARD_ASSIGN(block.rms_norm_, kernels::select<RmsNorm>({config.width, config.norm_eps}));
  const attention::GqaShape gqa{.width = config.width,
                                .rotary_dim = config.rope.rotary_dim,
                                .norm_eps = config.norm_eps,
                                .block_tokens = shape.block_tokens,
                                .weight = shape.weight,
                                .cache = shape.weight,
                                .max_tokens = shape.limits.max_tokens};
  SWITCHYARD_ASSIGN(block.attention_, attention::Gqa::create(spec.attention, gqa));
  if (spec.router) {
    const moe::LayerSpec layer{.router = *spec.router,
                               .width = config.width,
                               .ffn_width = spec.ffn_width,
                               .shared_width = spec.shared.width,
                               .shared_gated = spec.shared.gated,
                               .residual_scale = config.residual_scale,
                               .weight = shape.weight};
    SWITCHYARD_ASSIGN(block.moe_, moe::Layer::create(layer, shape.limits));
  } else {
    SWITCHYARD_ASSIGN(block.dense_, moe::Experts::create({1, config.width, spec.ffn_width,
                                                          shape.limits.max_tokens, shape.weight}));
    SWITCHYARD_ASSIGN(block.add_dense_, kernels::select<Combine>({config.width, 0}));
  }
  return block;
}

void Block::set_norms(std::vector<float> attention_norm, std::vector<float> ffn_norm) {
  attention_norm_ = std::move(attention_norm);
  ffn_norm_ = std::move(ffn_norm);
}

void Block::norm(float* x, const float* add, const std::vector<float>& weight, float* y,
                 int64_t tokens, const moe::Step& step) const {
  const ZoneScope zone(step.stream.tracer(), Zone::norm, step.layer);
  const int64_t mark = step.arena.mark();
  rms_norm_.run({.x = x,
                 .add = add,
                 .add_scale = residual_scale_,
                 .weight = weight.data(),
                 .y = y,
                 .tokens = tokens},
                scratch(rms_norm_, step), step.stream);
  step.arena.rewind(mark);
}

std::optional<Routing> Block::forward(float* x, const attention::StepView& view, void* k_cache,
                                      void* v_cache, const moe::Step& step) {
  const int64_t tokens = view.tokens;
  const auto normed = step.arena.take<float>(tokens * width_);
  const float* mixed = nullptr;
  norm(x, nullptr, attention_norm_, normed.data(), tokens, step);
  {
    const ZoneScope zone(step.stream.tracer(), Zone::attention, step.layer);
    mixed = attention_.forward(normed.data(), view, k_cache, v_cache, step.arena, step.stream);
  }
  norm(x, mixed, ffn_norm_, normed.data(), tokens, step);
  if (moe_) return moe_->forward(normed.data(), tokens, x, step);
  const float* out = dense_->forward_dense(normed.data(), tokens, Zone::dense_ffn, step);
  add_dense_.run({.shared = out, .scale = residual_scale_, .y = x, .tokens = tokens},
                 scratch(add_dense_, step), step.stream);
  return std::nullopt;
}

int64_t Block::room(const moe::Limits& limits) const noexcept {
  int64_t room = Arena::room<float>(limits.max_tokens * width_) +
                 attention_.room(limits.num_threads) +
                 Arena::room<std::byte>(rms_norm_.workspace_bytes(limits.num_threads));
  if (moe_) return room + moe_->room(limits);
  return room + dense_->dense_room(limits.num_threads) +
         Arena::room<std::byte>(add_dense_.workspace_bytes(limits.num_threads));
}

}  // namespace switchyard::model
