// SPDX-License-Identifier: Apache-2.0
// GraniteMoe and GraniteMoeShared: experts stored as 3-D tensors, softmax over the picks, and four
// multipliers (on the embedding, on the attention scores in place of Z^-1/2, on both residual sums,
// and a divisor of the logits). Source: IBM Granite 3.0, the models' own code.
#include "model/families/common.h"

namespace switchyard::model {
namespace {

// The second spelling of router and experts is that of files written by transformers 5.
const std::vector<TensorName> kNames = with_base_names({
    {TensorRole::router, "model.layers.{L}.block_sparse_moe.router.layer.weight"},
    {TensorRole::experts_gate_up, "model.layers.{L}.block_sparse_moe.input_linear.weight"},
    {TensorRole::experts_down, "model.layers.{L}.block_sparse_moe.output_linear.weight"},
    {TensorRole::router, "model.layers.{L}.block_sparse_moe.router.weight"},
    {TensorRole::experts_gate_up, "model.layers.{L}.block_sparse_moe.experts.gate_up_proj"},
    {TensorRole::experts_down, "model.layers.{L}.block_sparse_moe.experts.down_proj"},
    {TensorRole::shared_gate_up, "model.layers.{L}.shared_mlp.input_linear.weight"},
    {TensorRole::shared_down, "model.layers.{L}.shared_mlp.output_linear.weight"},
});

struct Multipliers {
  float embedding = 1, attention = 1, residual = 1, logits_divisor = 1;
};

Result<float> read_multiplier(ConfigReader& reader, std::string_view key) {
  SWITCHYARD_ASSIGN(const double value, reader.real(key, 1.0));
  if (value > 0) return static_cast<float>(value);
  return fail(Code::bad_file, "{}: key '{}': expected a positive number, found {}", reader.where(),
              key, value);
}

Result<Multipliers> read_multipliers(ConfigReader& reader) {
  Multipliers m;
  SWITCHYARD_ASSIGN(m.embedding, read_multiplier(reader, "embedding_multiplier"));
  SWITCHYARD_ASSIGN(m.attention, read_multiplier(reader, "attention_multiplier"));
  SWITCHYARD_ASSIGN(m.residual, read_multiplier(reader, "residual_multiplier"));
  SWITCHYARD_ASSIGN(m.logits_divisor, read_multiplier(reader, "logits_scaling"));
  return m;
}

Result<ModelConfig> parse(const Json& json) {
  ConfigReader reader(json, "config.json");
  SWITCHYARD_ASSIGN(Base base, read_base(reader, {}));
  SWITCHYARD_ASSIGN(const Multipliers multipliers, read_multipliers(reader));
  BlockSpec block;
  block.attention = base.attention;
  block.attention.scale = multipliers.attention;
  SWITCHYARD_ASSIGN(const bool bias, reader.boolean("attention_bias", false));
  block.attention.qkv_bias = block.attention.output_bias = bias;
  SWITCHYARD_ASSIGN(block.ffn_width, reader.size("intermediate_size"));
  SWITCHYARD_ASSIGN(block.shared.width, reader.count("shared_intermediate_size", 0));
  RouterSpec router;
  SWITCHYARD_ASSIGN(router.num_experts, reader.size("num_local_experts", 8));
  SWITCHYARD_ASSIGN(router.top_k, reader.size("num_experts_per_tok", 2));
  router.weigh = Weigh::softmax_after_top_k;
  block.router = router;
  SWITCHYARD_TRY(reader.finish("granitemoe"));
  base.config.embedding_scale = multipliers.embedding;
  base.config.residual_scale = multipliers.residual;
  base.config.logit_scale = 1.0f / multipliers.logits_divisor;
  base.config.blocks.assign(base.num_layers, block);
  return std::move(base.config);
}

constexpr std::string_view kTypes[] = {"granitemoe", "granitemoeshared"};

}  // namespace

extern const Family kGraniteMoe = {"granitemoe", "GraniteMoe, GraniteMoeShared", kTypes, parse,
                                   kNames};

}  // namespace switchyard::model
