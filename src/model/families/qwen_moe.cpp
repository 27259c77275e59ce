// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE (gated shared expert, biased q, k, v), and Qwen3-MoE (per-head q and k
// norm, explicit head size). Both mix sparse and dense layers by decoder_sparse_step and
// mlp_only_layers. Source: Qwen Team 2024, arXiv 2407.10671; Qwen Team 2025, arXiv 2505.09388.
#include "model/families/common.h"

namespace switchyard::model {
namespace {

const std::vector<TensorName> kNames = with_mlp_expert_names({
    {TensorRole::q_norm, "model.layers.{L}.self_attn.q_norm.weight"},
    {TensorRole::k_norm, "model.layers.{L}.self_attn.k_norm.weight"},
    {TensorRole::shared_gate, "model.layers.{L}.mlp.shared_expert.gate_proj.weight"},
    {TensorRole::shared_up, "model.layers.{L}.mlp.shared_expert.up_proj.weight"},
    {TensorRole::shared_down, "model.layers.{L}.mlp.shared_expert.down_proj.weight"},
    {TensorRole::shared_router, "model.layers.{L}.mlp.shared_expert_gate.weight"},
    {TensorRole::dense_gate, "model.layers.{L}.mlp.gate_proj.weight"},
    {TensorRole::dense_up, "model.layers.{L}.mlp.up_proj.weight"},
    {TensorRole::dense_down, "model.layers.{L}.mlp.down_proj.weight"},
});

struct Widths {
  int expert = 0, dense = 0;
};

// What both generations share, once the attention spec is settled. windows[l] is layer l's window.
Result<ModelConfig> build(ConfigReader& reader, Base base, const SharedExpertSpec& shared,
                          const std::vector<int>& windows, std::string_view family) {
  RouterSpec router;
  SWITCHYARD_ASSIGN(router.num_experts, reader.size_of_either("num_experts", "num_local_experts"));
  SWITCHYARD_ASSIGN(router.top_k, reader.size("num_experts_per_tok"));
  SWITCHYARD_ASSIGN(const bool renormalize, reader.boolean("norm_topk_prob", false));
  router.weigh = renormalize ? Weigh::renormalize : Weigh::raw;
  Widths width;
  SWITCHYARD_ASSIGN(width.expert, reader.size("moe_intermediate_size"));
  SWITCHYARD_ASSIGN(width.dense, reader.size("intermediate_size", width.expert));
  SWITCHYARD_ASSIGN(const SparsePattern pattern, read_sparse_pattern(reader));
  for (int l = 0; l < base.num_layers; ++l) {
    BlockSpec block;
    block.attention = base.attention;
    block.attention.window = windows[l];
    block.ffn_width = width.dense;
    if (pattern.sparse(l)) {
      block.router = router;
      block.ffn_width = width.expert;
      block.shared = shared;
    }
    base.config.blocks.push_back(block);
  }
  SWITCHYARD_TRY(reader.finish(family));
  return std::move(base.config);
}

// Windows of Qwen2-MoE: by layer_types where given, else the even layers below max_window_layers.
Result<std::vector<int>> qwen2_windows(ConfigReader& reader, int num_layers) {
  SWITCHYARD_ASSIGN(const bool use_window, reader.boolean("use_sliding_window", false));
  SWITCHYARD_ASSIGN(const int window, reader.count("sliding_window", 4096));
  SWITCHYARD_ASSIGN(const int last, reader.count("max_window_layers", 28));
  SWITCHYARD_ASSIGN(const std::vector<std::string> types, reader.texts("layer_types"));
  if (!types.empty() && std::ssize(types) != num_layers) {
    return fail(Code::bad_file, "{}: layer_types has {} entries for {} layers", reader.where(),
                types.size(), num_layers);
  }
  std::vector<int> windows(num_layers, 0);
  for (int l = 0; l < num_layers && use_window; ++l) {
    const bool slides = types.empty() ? l % 2 == 0 && l < last : types[l] == "sliding_attention";
    if (slides) windows[l] = window;
  }
  return windows;
}

Result<ModelConfig> parse_qwen2(const Json& json) {
  ConfigReader reader(json, "config.json");
  SWITCHYARD_ASSIGN(Base base, read_base(reader, {}));
  SWITCHYARD_ASSIGN(base.attention.qkv_bias, reader.boolean("qkv_bias", true));
  SharedExpertSpec shared{.gated = true};
  SWITCHYARD_ASSIGN(shared.width, reader.size("shared_expert_intermediate_size"));
  SWITCHYARD_ASSIGN(const std::vector<int> windows, qwen2_windows(reader, base.num_layers));
  return build(reader, std::move(base), shared, windows, "qwen2_moe");
}

Result<ModelConfig> parse_qwen3(const Json& json) {
  ConfigReader reader(json, "config.json");
  SWITCHYARD_ASSIGN(Base base, read_base(reader, {}));
  base.attention.qk_norm = QkNorm::per_head;
  SWITCHYARD_ASSIGN(const bool bias, reader.boolean("attention_bias", false));
  base.attention.qkv_bias = base.attention.output_bias = bias;
  SWITCHYARD_ASSIGN(const bool use_window, reader.boolean("use_sliding_window", false));
  SWITCHYARD_ASSIGN(const int window, reader.count("sliding_window", 4096));
  reader.ignore({"max_window_layers"});  // the model's own code does not read it
  const std::vector<int> windows(base.num_layers, use_window ? window : 0);
  return build(reader, std::move(base), {}, windows, "qwen3_moe");
}

constexpr std::string_view kQwen2Types[] = {"qwen2_moe"};
constexpr std::string_view kQwen3Types[] = {"qwen3_moe"};

}  // namespace

extern const Family kQwen2Moe = {"qwen2_moe", "Qwen1.5-MoE, Qwen2-MoE", kQwen2Types, parse_qwen2,
                                 kNames};
extern const Family kQwen3Moe = {"qwen3_moe", "Qwen3-MoE", kQwen3Types, parse_qwen3, kNames};

}  // namespace switchyard::model
