// SPDX-License-Identifier: Apache-2.0
// Mixtral: softmax over the picks, every layer sparse, no shared expert.
// Source: Jiang et al. 2024, arXiv 2401.04088.
#include "model/families/common.h"

namespace switchyard::model {
namespace {

// w1 is the gate, w3 the up and w2 the down projection. Newer files say mlp. where older ones say
// block_sparse_moe.
const std::vector<TensorName> kNames = with_base_names({
    {TensorRole::router, "model.layers.{L}.block_sparse_moe.gate.weight"},
    {TensorRole::expert_gate, "model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight"},
    {TensorRole::expert_up, "model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight"},
    {TensorRole::expert_down, "model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight"},
    {TensorRole::router, "model.layers.{L}.mlp.gate.weight"},
    {TensorRole::expert_gate, "model.layers.{L}.mlp.experts.{E}.w1.weight"},
    {TensorRole::expert_up, "model.layers.{L}.mlp.experts.{E}.w3.weight"},
    {TensorRole::expert_down, "model.layers.{L}.mlp.experts.{E}.w2.weight"},
    {TensorRole::experts_gate_up, "model.layers.{L}.mlp.experts.gate_up_proj"},
    {TensorRole::experts_down, "model.layers.{L}.mlp.experts.down_proj"},
});

Result<ModelConfig> parse(const Json& json) {
  ConfigReader reader(json, "config.json");
  SWITCHYARD_ASSIGN(Base base, read_base(reader, {.rope_theta = 1e6, .norm_eps = 1e-5}));
  BlockSpec block;
  block.attention = base.attention;
  SWITCHYARD_ASSIGN(block.attention.window, read_window(reader));
  SWITCHYARD_ASSIGN(block.ffn_width, reader.size("intermediate_size"));
  RouterSpec router;
  SWITCHYARD_ASSIGN(router.num_experts, reader.size("num_local_experts", 8));
  SWITCHYARD_ASSIGN(router.top_k, reader.size("num_experts_per_tok", 2));
  router.weigh = Weigh::renormalize;
  block.router = router;
  SWITCHYARD_TRY(reader.finish("mixtral"));
  base.config.blocks.assign(base.num_layers, block);
  return std::move(base.config);
}

constexpr std::string_view kTypes[] = {"mixtral"};

}  // namespace

extern const Family kMixtral = {"mixtral", "Mixtral", kTypes, parse, kNames};

}  // namespace switchyard::model
