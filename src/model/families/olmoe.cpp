// SPDX-License-Identifier: Apache-2.0
// OLMoE: RMS norm over the whole q and k projections, then an optional clip; raw softmax weights.
// Source: Muennighoff et al. 2024, arXiv 2409.02060.
#include "model/families/common.h"

namespace switchyard::model {
namespace {

const std::vector<TensorName> kNames = with_mlp_expert_names({
    {TensorRole::q_norm, "model.layers.{L}.self_attn.q_norm.weight"},
    {TensorRole::k_norm, "model.layers.{L}.self_attn.k_norm.weight"},
});

Result<ModelConfig> parse(const Json& json) {
  ConfigReader reader(json, "config.json");
  SWITCHYARD_ASSIGN(Base base, read_base(reader, {.norm_eps = 1e-5}));
  BlockSpec block;
  block.attention = base.attention;
  block.attention.qk_norm = QkNorm::full_width;
  SWITCHYARD_ASSIGN(const double clip, reader.real("clip_qkv", 0.0));
  if (clip < 0) {
    return fail(Code::bad_file,
                "config.json: key 'clip_qkv': expected a positive number or null, "
                "found {}",
                clip);
  }
  block.attention.clip = static_cast<float>(clip);
  SWITCHYARD_ASSIGN(const bool bias, reader.boolean("attention_bias", false));
  block.attention.qkv_bias = block.attention.output_bias = bias;
  SWITCHYARD_ASSIGN(block.ffn_width, reader.size("intermediate_size"));
  RouterSpec router;
  SWITCHYARD_ASSIGN(router.num_experts,
                    reader.size_of_either("num_experts", "num_local_experts", 64));
  SWITCHYARD_ASSIGN(router.top_k, reader.size("num_experts_per_tok", 8));
  SWITCHYARD_ASSIGN(const bool renormalize, reader.boolean("norm_topk_prob", false));
  router.weigh = renormalize ? Weigh::renormalize : Weigh::raw;
  block.router = router;
  SWITCHYARD_TRY(reader.finish("olmoe"));
  base.config.blocks.assign(base.num_layers, block);
  return std::move(base.config);
}

constexpr std::string_view kTypes[] = {"olmoe"};

}  // namespace

extern const Family kOlmoe = {"olmoe", "OLMoE", kTypes, parse, kNames};

}  // namespace switchyard::model
