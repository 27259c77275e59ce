// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V1-MoE: shared experts that are always on, the first layers dense, raw or
// epsilon-renormalised softmax. Source: Dai et al. 2024, arXiv 2401.06066; the model's own code
// (model_type "deepseek").
#include "model/families/common.h"

namespace switchyard::model {
namespace {

const std::vector<TensorName> kNames = with_mlp_expert_names({
    {TensorRole::shared_gate, "model.layers.{L}.mlp.shared_experts.gate_proj.weight"},
    {TensorRole::shared_up, "model.layers.{L}.mlp.shared_experts.up_proj.weight"},
    {TensorRole::shared_down, "model.layers.{L}.mlp.shared_experts.down_proj.weight"},
    {TensorRole::dense_gate, "model.layers.{L}.mlp.gate_proj.weight"},
    {TensorRole::dense_up, "model.layers.{L}.mlp.up_proj.weight"},
    {TensorRole::dense_down, "model.layers.{L}.mlp.down_proj.weight"},
});

Result<RouterSpec> read_router(ConfigReader& reader) {
  RouterSpec router;
  SWITCHYARD_TRY(reader.require_text("scoring_func", "softmax", "the gate of this family"));
  SWITCHYARD_ASSIGN(router.num_experts, reader.size("n_routed_experts"));
  SWITCHYARD_ASSIGN(router.top_k, reader.size("num_experts_per_tok"));
  SWITCHYARD_ASSIGN(const bool renormalize, reader.boolean("norm_topk_prob", false));
  if (renormalize && router.top_k > 1) {
    router.weigh = Weigh::renormalize;
    router.renormalize_epsilon = 1e-20f;
  }
  return router;
}

Result<ModelConfig> parse(const Json& json) {
  ConfigReader reader(json, "config.json");
  SWITCHYARD_ASSIGN(Base base, read_base(reader, {}));
  SWITCHYARD_ASSIGN(const bool bias, reader.boolean("attention_bias", false));
  base.attention.qkv_bias = base.attention.output_bias = bias;
  SWITCHYARD_ASSIGN(const int dense_width, reader.size("intermediate_size"));
  SWITCHYARD_ASSIGN(const int first_sparse, reader.count("first_k_dense_replace", 0));
  SWITCHYARD_ASSIGN(const int every, reader.size("moe_layer_freq", 1));
  const bool has_experts = reader.has("n_routed_experts");
  RouterSpec router;
  int expert_width = 0, num_shared = 0;
  if (has_experts) {
    SWITCHYARD_ASSIGN(router, read_router(reader));
    SWITCHYARD_ASSIGN(expert_width, reader.size("moe_intermediate_size"));
    SWITCHYARD_ASSIGN(num_shared, reader.count("n_shared_experts", 0));
  }
  for (int l = 0; l < base.num_layers; ++l) {
    BlockSpec block;
    block.attention = base.attention;
    block.ffn_width = dense_width;
    if (has_experts && l >= first_sparse && l % every == 0) {
      block.router = router;
      block.ffn_width = expert_width;
      block.shared.width = num_shared * expert_width;
    }
    base.config.blocks.push_back(block);
  }
  SWITCHYARD_TRY(reader.finish("deepseek"));
  return std::move(base.config);
}

constexpr std::string_view kTypes[] = {"deepseek"};

}  // namespace

extern const Family kDeepseek = {"deepseek", "DeepSeekMoE (V1)", kTypes, parse, kNames};

}  // namespace switchyard::model
