// SPDX-License-Identifier: Apache-2.0
// The launches of a step, layer by layer. On Hopper they are chained (kernels/cuda/chain.cuh): steps of few tokens are bound by
// latency, so each begins while the one before ends, norms ride in the products that read them, and a launch asks for the weights
// that the next ones read.
#include <utility>

#include "base/environment.h"
#include "kernels/cuda/dense_tile.h"
#include "model/cuda/model.h"

namespace switchyard::model::cuda {

namespace k = switchyard::cuda;

void CudaModel::dense(const std::byte* x, const Matrix& matrix, int64_t tokens, float* y,
                      bool add) {
  products_.run({.x = x,
                 .weight = matrix.data,
                 .bias = matrix.bias,
                 .dtype = options_.dtype,
                 .tokens = tokens,
                 .n = matrix.n,
                 .k = matrix.k,
                 .alpha = add ? config_.residual_scale : 1.0f,
                 .accumulate = add,
                 .y = y},
                queue());
}

// buffers_.rows from the residual stream; for gates in f32 as well.
void CudaModel::norm(const float* weight, const StepShape& shape, bool for_gates) {
  k::NormRows args{.x = buffers_.x,
                   .weight = weight,
                   .tokens = shape.tokens,
                   .width = config_.width,
                   .eps = config_.norm_eps};
  if (bf16()) {
    args.y_bf16 = buffers_.rows;
    args.y_f32 = for_gates ? buffers_.normed : nullptr;
  } else {
    args.y_f32 = reinterpret_cast<float*>(buffers_.rows);
  }
  k::norm_rows(args, queue());
}

k::QkNormKind norm_kind(QkNorm norm) {
  return norm == QkNorm::per_head     ? k::QkNormKind::per_head
         : norm == QkNorm::full_width ? k::QkNormKind::full_width
                                      : k::QkNormKind::none;
}

// The q, k, v product of the residual stream through its norm, for few tokens. It asks for the weights of the output product: attention
// leaves the memory idle meanwhile.
k::Dense CudaModel::normed_product(int layer, const StepShape& shape) const {
  const BlockWeights& w = weights_.blocks[layer];
  return {.weight = w.qkv.data,
          .bias = w.qkv.bias,
          .dtype = options_.dtype,
          .tokens = shape.tokens,
          .n = w.qkv.n,
          .k = w.qkv.k,
          .y = buffers_.qkv,
          .norm = {.x = buffers_.x,
                   .weight = w.attention_norm,
                   .tokens = shape.tokens,
                   .width = config_.width,
                   .eps = config_.norm_eps},
          .next = w.output.data,
          .next_bytes = w.output.bytes(options_.dtype)};
}

// Its sums of squares have another order than norm_rows', so its bits are not those of more tokens.
bool CudaModel::norms_in_product(int layer, const StepShape& shape) const {
  return !deterministic() && k::dense_few_accepts(normed_product(layer, shape));
}

// Queries to their buffer, keys and values to the cache. In bf16 the products of many tokens are rounded, as reference implementations do:
// half the bytes; or they go through the heads in the same launch.
void CudaModel::run_qkv(int layer, const StepShape& shape, k::PrepareHeads heads) {
  const BlockWeights& w = weights_.blocks[layer];
  heads.qkv = buffers_.qkv;
  if (!rows_ready_ && norms_in_product(layer, shape)) {
    k::dense_few(normed_product(layer, shape), queue());
    return k::prepare_heads(heads, queue());
  }
  if (!rows_ready_) norm(w.attention_norm, shape, false);
  if (bf16() && !deterministic()) {
    const k::Dense product{.x = buffers_.rows,
                           .weight = w.qkv.data,
                           .bias = w.qkv.bias,
                           .tokens = shape.tokens,
                           .n = w.qkv.n,
                           .k = w.qkv.k,
                           .y_bf16 = buffers_.qkv,
                           .next = w.gate_high,
                           .next_bytes = w.gate.n * w.gate.k * 4};
    if (k::dense_tile_heads(product, heads, queue())) return;
    if (products_.run_rounded(product, queue())) {
      heads.qkv = nullptr;
      heads.qkv_bf16 = buffers_.qkv;
      return k::prepare_heads(heads, queue());
    }
  }
  dense(buffers_.rows, w.qkv, shape.tokens, buffers_.qkv, false);
  k::prepare_heads(heads, queue());
}

void CudaModel::run_attention(int layer, const StepShape& shape, const StepPointers& step) {
  const attention::GqaSpec& spec = config_.blocks[layer].attention;
  const BlockWeights& w = weights_.blocks[layer];
  std::byte* k_cache = cache_.data() + 2 * layer * cache_layer_bytes_;
  std::byte* v_cache = k_cache + cache_layer_bytes_;
  run_qkv(layer, shape,
          {.heads = spec.heads,
           .kv_heads = spec.kv_heads,
           .head_dim = spec.head_dim,
           .rotary_dim = config_.rope.rotary_dim,
           .norm = norm_kind(spec.qk_norm),
           .eps = config_.norm_eps,
           .clip = spec.clip,
           .block_tokens = options_.block_tokens,
           .dtype = options_.dtype,
           .q_norm = w.q_norm,
           .k_norm = w.k_norm,
           .cos = step.cos,
           .sin = step.sin,
           .rope_row = step.rope_row,
           .slot = step.slot,
           .q = buffers_.q,
           .k_cache = k_cache,
           .v_cache = v_cache,
           .tokens = shape.tokens,
           .words = buffers_.head_words.as<uint64_t>()});
  k::Attend attend = attend_shape(spec, options_);
  attend.q = buffers_.q;
  attend.k_cache = k_cache;
  attend.v_cache = v_cache;
  attend.seq_offset = step.seq_offset;
  attend.context_len = step.context_len;
  attend.block_table = step.block_table;
  attend.max_blocks = step.max_blocks;
  attend.sequences = shape.sequences;
  attend.tokens = shape.tokens;
  attend.out = buffers_.mixed;
  attend.workspace = buffers_.attention_workspace.data();
  if (!fast_attention_) {
    k::attend_plain(attend, queue());
  } else {
    k::attend_decode(attend, queue());
    if (shape.tokens > shape.sequences) k::attend_prefill(attend, queue());
  }
  dense(buffers_.mixed, w.output, shape.tokens, buffers_.x, true);
}

// The same for many tokens, on tensor cores and nearly as exact as in f32: normed rows and gates in two parts of bf16.
void CudaModel::run_split_gate(int layer, const k::NormRoute& both) {
  const BlockWeights& w = weights_.blocks[layer];
  k::NormRows norm = both.norm;
  norm.y_split = buffers_.split;
  k::norm_rows(norm, queue());
  k::Dense product{.x = buffers_.split,
                   .weight = w.gate_high,
                   .tokens = norm.tokens,
                   .n = both.num_experts,
                   .k = 2 * norm.width,
                   .y = both.logits};
  products_.run(product, queue());
  if (w.gate_low == nullptr) return;
  product.x = norm.y_bf16;
  product.weight = w.gate_low;
  product.k = norm.width;
  product.accumulate = true;
  products_.run(product, queue());
}

// The norm before the experts, and their gate's logits. True: the picks and their rows too.
bool CudaModel::run_gate(int layer, const StepShape& shape) {
  const BlockWeights& w = weights_.blocks[layer];
  const int experts = config_.blocks[layer].router->num_experts;
  const float* normed = bf16() ? buffers_.normed : reinterpret_cast<float*>(buffers_.rows);
  const k::NormRoute both{
      .norm = {.x = buffers_.x,
               .weight = w.ffn_norm,
               .tokens = shape.tokens,
               .width = config_.width,
               .eps = config_.norm_eps,
               .y_f32 = w.shared_gate.data != nullptr ? buffers_.normed : nullptr,
               .y_bf16 = buffers_.rows},
      .gate = reinterpret_cast<float*>(w.gate.data),
      .num_experts = experts,
      .logits = buffers_.gate};
  if (bf16() && !deterministic()) {
    k::NormGateParts parts{.norm = both.norm,
                           .gate_high = w.gate_high,
                           .gate_low = w.gate_low,
                           .num_experts = experts,
                           .logits = buffers_.gate};
    if (k::norm_route_accepts(both)) {
      k::norm_route(both, queue());
    } else if (k::norm_gate_parts_accepts(parts)) {
      ExpertCall call = expert_call(layer, shape);
      parts.scores = experts_[layer].scores(call, buffers_.experts);
      call.routed = parts.scores.words != nullptr;
      const k::FirstWeights first = experts_[layer].first_weights(w, call, buffers_.experts);
      parts.next = first.data;
      parts.next_bytes = first.bytes;
      k::norm_gate_parts(parts, queue());
    } else if (k::norm_gate_accepts(both)) {
      k::norm_gate(both, queue());
    } else {
      run_split_gate(layer, both);
    }
    return parts.scores.words != nullptr;
  }
  norm(w.ffn_norm, shape, true);
  products_.run({.x = normed,
                 .weight = w.gate.data,
                 .dtype = DType::f32,
                 .tokens = shape.tokens,
                 .n = experts,
                 .k = config_.width,
                 .y = buffers_.gate},
                queue());
  return false;
}

// x += down(silu(gate) * up): a dense layer's, or the shared experts', then weighted by a sigmoid.
void CudaModel::run_gated_dense(int layer, const StepShape& shape, const float* weight_logits) {
  const BlockWeights& w = weights_.blocks[layer];
  dense(buffers_.rows, w.gate_up, shape.tokens, buffers_.wide, false);
  k::swiglu({.gate_up = buffers_.wide,
             .weight = weight_logits,
             .tokens = shape.tokens,
             .ffn_width = w.down.k,
             .dtype = options_.dtype,
             .h = buffers_.hidden},
            queue());
  dense(buffers_.hidden, w.down, shape.tokens, buffers_.x, true);
}

ExpertCall CudaModel::expert_call(int layer, const StepShape& shape) const {
  const int64_t first = moe_layer_[static_cast<size_t>(layer)] * shape.tokens * most_picks_;
  const StepResults results(buffers_.results, buffers_.logit_rows, num_picks(shape));
  return {.x = buffers_.rows,
          .logits = buffers_.gate,
          .tokens = shape.tokens,
          .expert = results.expert + first,
          .weight = results.weight + first,
          .scale = config_.residual_scale,
          .y = buffers_.x,
          .layer = layer};
}

Status CudaModel::run_experts(int layer, const StepShape& shape, bool routed) {
  const auto at = static_cast<size_t>(layer);
  ExpertCall call = expert_call(layer, shape);
  call.routed = routed;
  rows_ready_ = experts_[at].writes_next() && at + 1 < weights_.blocks.size() &&
                !norms_in_product(layer + 1, shape);
  if (rows_ready_) {
    call.next_norm = weights_.blocks[at + 1].attention_norm;
    call.next_epsilon = config_.norm_eps;
    call.next_x = buffers_.next_rows;
  }
  SWITCHYARD_TRY(experts_[at].run(weights_.blocks[at], call, buffers_.experts, device_, stream_));
  if (rows_ready_) std::swap(buffers_.rows, buffers_.next_rows);
  return {};
}

Status CudaModel::run_ffn(int layer, const StepShape& shape) {
  const BlockWeights& w = weights_.blocks[layer];
  const BlockSpec& spec = config_.blocks[layer];
  rows_ready_ = false;
  if (!spec.router) {
    norm(w.ffn_norm, shape, false);
    run_gated_dense(layer, shape, nullptr);
    return {};
  }
  const bool routed = run_gate(layer, shape);
  if (spec.shared.width > 0) {
    const float* normed = bf16() ? buffers_.normed : reinterpret_cast<float*>(buffers_.rows);
    if (spec.shared.gated) {
      k::dense_plain({.x = normed,
                      .weight = w.shared_gate.data,
                      .dtype = DType::f32,
                      .tokens = shape.tokens,
                      .n = 1,
                      .k = config_.width,
                      .y = buffers_.shared_weight},
                     queue());
    }
    run_gated_dense(layer, shape, spec.shared.gated ? buffers_.shared_weight : nullptr);
  }
  return run_experts(layer, shape, routed);
}

// Of few tokens in one launch, and the greedy choice with it.
k::StepHead CudaModel::head_of(const Step& plan) const {
  const StepPointers step = arrays_.pointers(plan.shape);
  const bool greedy = plan.asked.picks && !plan.asked.draws && !plan.asked.adjusts;
  return {.x = buffers_.x,
          .row = step.logit_row,
          .norm = weights_.final_norm,
          .table = weights_.lm_head.data,
          .dtype = options_.dtype,
          .tokens = plan.shape.logit_rows,
          .width = config_.width,
          .vocab = config_.vocab,
          .epsilon = config_.norm_eps,
          .scale = config_.logit_scale,
          .logits = buffers_.logits,
          .pick = greedy ? buffers_.results : nullptr,
          .workspace = head_workspace_.data()};
}

bool CudaModel::runs_in_head(const k::StepHead& head) const {
  return !deterministic() && k::step_head_accepts(head);
}

void CudaModel::run_head(const Step& plan, const StepPointers& step) {
  const StepShape& shape = plan.shape;
  const k::StepHead head = head_of(plan);
  if (runs_in_head(head)) return k::step_head(head, queue());
  k::NormRows args{.x = buffers_.x,
                   .row = step.logit_row,
                   .weight = weights_.final_norm,
                   .tokens = shape.logit_rows,
                   .width = config_.width,
                   .eps = config_.norm_eps};
  if (bf16()) {
    args.y_bf16 = buffers_.head_rows;
  } else {
    args.y_f32 = reinterpret_cast<float*>(buffers_.head_rows);
  }
  k::norm_rows(args, queue());
  products_.run({.x = buffers_.head_rows,
                 .weight = weights_.lm_head.data,
                 .dtype = options_.dtype,
                 .tokens = shape.logit_rows,
                 .n = config_.vocab,
                 .k = config_.width,
                 .alpha = config_.logit_scale,
                 .y = buffers_.logits},
                queue());
}

Status CudaModel::show_hidden(int block, const StepShape& shape) {
  if (!hidden_probe_) return {};
  hidden_.resize(static_cast<size_t>(shape.tokens * config_.width));
  device_.copy_out(hidden_.data(), buffers_.x, std::ssize(hidden_) * 4);
  SWITCHYARD_TRY(device_.synchronize("read a block's result"));
  hidden_probe_(block, TensorView::of(hidden_.data(), {shape.tokens, config_.width}));
  return {};
}

// Everything between a step's arrays and its logits.
Status CudaModel::launch(const Step& plan) {
  const StepShape& shape = plan.shape;
  const StepPointers step = arrays_.pointers(shape);
  k::BeginStep begin = arrays_.begin(shape);
  begin.turn = results_.device_turn();
  begin.advances = plan.advances;
  begin.pick = buffers_.results;
  begin.table = weights_.embedding.data;
  begin.dtype = options_.dtype;
  begin.width = config_.width;
  begin.scale = config_.embedding_scale;
  begin.x = buffers_.x;
  begin.arrays_are_awaited = !plan.persistent;  // attention of decoding plans its work early
  k::begin_step(begin, queue());
  if (plan.persistent) {
    run_persistent(step);
    run_head(plan, step);
    return {};
  }
  rows_ready_ = false;
  for (int l = 0; l < std::ssize(config_.blocks); ++l) {
    run_attention(l, shape, step);
    SWITCHYARD_TRY(run_ffn(l, shape));
    SWITCHYARD_TRY(show_hidden(l, shape));
  }
  run_head(plan, step);
  return {};
}

}  // namespace switchyard::model::cuda
