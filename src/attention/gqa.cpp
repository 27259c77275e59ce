// SPDX-License-Identifier: Apache-2.0
#include "attention/gqa.h"

#include <utility>

#include "base/environment.h"
#include "kernels/select.h"

namespace switchyard::attention {
namespace {

template <class Op>
std::span<std::byte> scratch(const Bound<Op>& op, Arena& arena, const Stream& stream) {
  return arena.take<std::byte>(op.workspace_bytes(stream.pool().num_threads()));
}

GroupedGemm::Problem projection(const GqaShape& shape, int64_t n, int64_t k, bool bias) {
  return {.n = n,
          .k = k,
          .max_rows = shape.max_tokens,
          .weight = shape.weight,
          .bias = bias,
          .deterministic = deterministic()};
}

}  // namespace

Result<Gqa> Gqa::create(const GqaSpec& spec, const GqaShape& shape) {
  Gqa gqa;
  gqa.spec_ = spec;
  gqa.shape_ = shape;
  const int64_t q_width = int64_t{spec.heads} * spec.head_dim;
  const int64_t qkv_width = int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  SWITCHYARD_ASSIGN(gqa.qkv_,
                    Linear::create(projection(shape, qkv_width, shape.width, spec.qkv_bias)));
  SWITCHYARD_ASSIGN(gqa.output_,
                    Linear::create(projection(shape, shape.width, q_width, spec.output_bias)));
  const PrepareQkv::Problem prepare{.heads = spec.heads,
                                    .kv_heads = spec.kv_heads,
                                    .head_dim = spec.head_dim,
                                    .rotary_dim = shape.rotary_dim,
                                    .norm = spec.qk_norm,
                                    .eps = shape.norm_eps,
                                    .clip = spec.clip,
                                    .block_tokens = shape.block_tokens,
                                    .cache = shape.cache};
  const Attention::Problem attend{.heads = spec.heads,
                                  .kv_heads = spec.kv_heads,
                                  .head_dim = spec.head_dim,
                                  .block_tokens = shape.block_tokens,
                                  .cache = shape.cache,
                                  .window = spec.window,
                                  .scale = spec.scale,
                                  .max_tokens = shape.max_tokens,
                                  .deterministic = deterministic()};
  SWITCHYARD_ASSIGN(gqa.prepare_, kernels::select<PrepareQkv>(prepare));
  SWITCHYARD_ASSIGN(gqa.attend_, kernels::select<Attention>(attend));
  return gqa;
}

void Gqa::set_norms(std::vector<float> q_norm, std::vector<float> k_norm) {
  SWITCHYARD_CHECK(spec_.qk_norm != QkNorm::none, "this layer has no q/k norm");
  q_norm_ = std::move(q_norm);
  k_norm_ = std::move(k_norm);
}

const float* Gqa::forward(const float* x, const StepView& view, void* k_cache, void* v_cache,
                          Arena& arena, const Stream& stream) const {
  const int64_t tokens = view.tokens;
  const auto out = arena.take<float>(tokens * shape_.width);
  const int64_t mark = arena.mark();
  const auto qkv = arena.take<float>(tokens * qkv_.gemm().problem().n);
  const auto q = arena.take<float>(tokens * spec_.heads * spec_.head_dim);
  const auto mixed = arena.take<float>(tokens * spec_.heads * spec_.head_dim);
  qkv_.run_dense(x, tokens, qkv.data(), arena, stream);
  prepare_.run({.qkv = qkv.data(),
                .q_norm = q_norm_.data(),
                .k_norm = k_norm_.data(),
                .cos = view.cos,
                .sin = view.sin,
                .slot = view.slot,
                .q = q.data(),
                .k_cache = k_cache,
                .v_cache = v_cache,
                .tokens = tokens},
               scratch(prepare_, arena, stream), stream);
  attend_.run({.q = q.data(),
               .k_cache = k_cache,
               .v_cache = v_cache,
               .seq_offset = view.seq_offset,
               .context_len = view.context_len,
               .block_table = view.block_table,
               .max_blocks = view.max_blocks,
               .sequences = view.sequences,
               .out = mixed.data()},
              scratch(attend_, arena, stream), stream);
  output_.run_dense(mixed.data(), tokens, out.data(), arena, stream);
  arena.rewind(mark);
  return out.data();
}

int64_t Gqa::room(int num_threads) const noexcept {
  const int64_t tokens = shape_.max_tokens;
  return Arena::room<float>(tokens * shape_.width) +
         Arena::room<float>(tokens * qkv_.gemm().problem().n) +
         2 * Arena::room<float>(tokens * spec_.heads * spec_.head_dim) +
         qkv_.run_dense_room(num_threads) + output_.run_dense_room(num_threads) +
         Arena::room<std::byte>(prepare_.workspace_bytes(num_threads)) +
         Arena::room<std::byte>(attend_.workspace_bytes(num_threads));
}

}  // namespace switchyard::attention
