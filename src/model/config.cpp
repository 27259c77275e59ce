// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <algorithm>
#include <cmath>

namespace switchyard::model {
namespace {

// Guards against sizes whose products overflow or that no machine holds; far above every published
// model.
constexpr int64_t kMaxElements = int64_t{1} << 48;

Status check_attention(const attention::GqaSpec& a, int layer) {
  if (a.heads % a.kv_heads != 0) {
    return fail(Code::bad_file,
                "config.json: layer {}: num_attention_heads {} is not a multiple of "
                "num_key_value_heads {}",
                layer, a.heads, a.kv_heads);
  }
  if (a.head_dim % 2 != 0) {
    return fail(Code::bad_file,
                "config.json: layer {}: head size {} is odd: rotary embedding needs "
                "pairs",
                layer, a.head_dim);
  }
  if (!(a.scale > 0) || !std::isfinite(a.scale)) {
    return fail(Code::bad_file, "config.json: layer {}: attention scale {} is not positive", layer,
                a.scale);
  }
  return {};
}

int64_t attention_parameters(const attention::GqaSpec& a, int64_t width) {
  const int64_t q = int64_t{a.heads} * a.head_dim, kv = int64_t{a.kv_heads} * a.head_dim;
  int64_t count = (q + 2 * kv) * width + width * q;
  if (a.qkv_bias) count += q + 2 * kv;
  if (a.output_bias) count += width;
  return count;
}

int64_t qk_norm_parameters(const attention::GqaSpec& a) {
  if (a.qk_norm == QkNorm::per_head) return 2 * a.head_dim;
  if (a.qk_norm == QkNorm::full_width) return int64_t{a.heads + a.kv_heads} * a.head_dim;
  return 0;
}

}  // namespace

int ModelConfig::num_moe_blocks() const noexcept {
  return static_cast<int>(
      std::count_if(blocks.begin(), blocks.end(), [](const BlockSpec& b) { return b.router; }));
}

Status ModelConfig::check() const {
  if (blocks.empty()) return fail(Code::bad_file, "config.json: the model has no layers");
  if (rope.rotary_dim % 2 != 0) {
    return fail(Code::bad_file, "config.json: rotary size {} is odd", rope.rotary_dim);
  }
  for (size_t l = 0; l < blocks.size(); ++l) {
    const BlockSpec& block = blocks[l];
    SWITCHYARD_TRY(check_attention(block.attention, static_cast<int>(l)));
    const int64_t experts = block.router ? block.router->num_experts : 1;
    if (experts * width > kMaxElements / std::max(block.ffn_width, 1)) {
      return fail(Code::bad_file, "config.json: layer {}: {} experts of {} x {} are absurd", l,
                  experts, width, block.ffn_width);
    }
    if (!block.router) continue;
    Status status = block.router->check();
    if (!status.ok()) {
      Error error =
          with_context(std::move(status).error(), fmt::format("config.json: layer {}", l));
      error.code = error.code == Code::bad_request ? Code::bad_file : error.code;
      return error;
    }
  }
  return {};
}

ParameterCount count_parameters(const ModelConfig& config) {
  ParameterCount count;
  const int64_t width = config.width;
  int64_t idle_experts = 0;
  count.embedding = int64_t{config.vocab} * width;
  count.lm_head = config.tied_embedding ? 0 : count.embedding;
  count.norms = width;
  for (const BlockSpec& block : config.blocks) {
    count.attention += attention_parameters(block.attention, width);
    count.norms += 2 * width + qk_norm_parameters(block.attention);
    const int64_t ffn = 3 * int64_t{block.ffn_width} * width;
    if (!block.router) {
      count.dense_ffn += ffn;
      continue;
    }
    count.router += int64_t{block.router->num_experts} * width;
    count.experts += block.router->num_experts * ffn;
    idle_experts += (block.router->num_experts - block.router->top_k) * ffn;
    count.shared += 3 * int64_t{block.shared.width} * width;
    if (block.shared.gated) count.shared += width;
  }
  count.total = count.embedding + count.attention + count.router + count.experts + count.shared +
                count.dense_ffn + count.norms + count.lm_head;
  count.active = count.total - idle_experts;
  // Of an untied input embedding one row is read; a tied one is read whole, as the output matrix.
  if (!config.tied_embedding) count.active -= count.embedding - width;
  return count;
}

}  // namespace switchyard::model
