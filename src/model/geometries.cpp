// SPDX-License-Identifier: Apache-2.0
// Source: the config.json of Qwen/Qwen3-30B-A3B, allenai/OLMoE-1B-7B-0924 and mistralai/Mixtral-8x7B-v0.1.
#include "model/geometries.h"

#include <string>

#include "base/json.h"
#include "model/model.h"

namespace switchyard::model {
namespace {

constexpr Geometry kGeometries[] = {
    {"qwen3-30b-a3b", R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "attention_bias": false, "vocab_size": 151936,
      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 6144, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 40960, "tie_word_embeddings": false})"},
    {"olmoe-1b-7b", R"({
      "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu",
      "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
      "num_key_value_heads": 16, "attention_bias": false, "clip_qkv": null, "vocab_size": 50304,
      "num_experts": 64, "num_experts_per_tok": 8, "intermediate_size": 1024,
      "norm_topk_prob": false, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null,
      "max_position_embeddings": 4096, "tie_word_embeddings": false})"},
    {"mixtral-8x7b", R"({
      "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
      "num_experts_per_tok": 2, "intermediate_size": 14336, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "sliding_window": null, "max_position_embeddings": 32768,
      "tie_word_embeddings": false})"},
};

}  // namespace

std::span<const Geometry> geometries() { return kGeometries; }

Result<ModelConfig> read_geometry(std::string_view name) {
  std::string known;
  for (const Geometry& geometry : kGeometries) {
    if (geometry.name == name) {
      SWITCHYARD_ASSIGN(const Json json, parse_json(geometry.config, geometry.name));
      return Model::read_config_json(json);
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", geometry.name);
  }
  return fail(Code::bad_request, "there is no geometry '{}': expected one of {}", name, known);
}

}  // namespace switchyard::model
