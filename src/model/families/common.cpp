// SPDX-License-Identifier: Apache-2.0
#include "model/families/common.h"

#include <algorithm>
#include <cmath>

namespace switchyard::model {
namespace {

constexpr TensorName kBaseNames[] = {
    {TensorRole::embedding, "model.embed_tokens.weight"},
    {TensorRole::final_norm, "model.norm.weight"},
    {TensorRole::lm_head, "lm_head.weight"},
    {TensorRole::attention_norm, "model.layers.{L}.input_layernorm.weight"},
    {TensorRole::ffn_norm, "model.layers.{L}.post_attention_layernorm.weight"},
    {TensorRole::q, "model.layers.{L}.self_attn.q_proj.weight"},
    {TensorRole::k, "model.layers.{L}.self_attn.k_proj.weight"},
    {TensorRole::v, "model.layers.{L}.self_attn.v_proj.weight"},
    {TensorRole::o, "model.layers.{L}.self_attn.o_proj.weight"},
    {TensorRole::q_bias, "model.layers.{L}.self_attn.q_proj.bias"},
    {TensorRole::k_bias, "model.layers.{L}.self_attn.k_proj.bias"},
    {TensorRole::v_bias, "model.layers.{L}.self_attn.v_proj.bias"},
    {TensorRole::o_bias, "model.layers.{L}.self_attn.o_proj.bias"},
    {TensorRole::ignored, "model.layers.{L}.self_attn.rotary_emb.inv_freq"},
};

constexpr TensorName kMlpExpertNames[] = {
    {TensorRole::router, "model.layers.{L}.mlp.gate.weight"},
    {TensorRole::expert_gate, "model.layers.{L}.mlp.experts.{E}.gate_proj.weight"},
    {TensorRole::expert_up, "model.layers.{L}.mlp.experts.{E}.up_proj.weight"},
    {TensorRole::expert_down, "model.layers.{L}.mlp.experts.{E}.down_proj.weight"},
    {TensorRole::experts_gate_up, "model.layers.{L}.mlp.experts.gate_up_proj"},
    {TensorRole::experts_down, "model.layers.{L}.mlp.experts.down_proj"},
};

// Keys of every config that change nothing in a forward pass of inference.
void ignore_common(ConfigReader& reader) {
  reader.ignore({"architectures",
                 "model_type",
                 "torch_dtype",
                 "dtype",
                 "transformers_version",
                 "use_cache",
                 "initializer_range",
                 "bos_token_id",
                 "pad_token_id",
                 "eos_token_id",
                 "attention_dropout",
                 "router_aux_loss_coef",
                 "output_router_logits",
                 "router_jitter_noise",
                 "_name_or_path",
                 "_attn_implementation",
                 "_experts_implementation",
                 "return_dict",
                 "id2label",
                 "label2id",
                 "pretraining_tp",
                 "auto_map",
                 "tokenizer_class",
                 "problem_type",
                 "is_decoder",
                 "chunk_size_feed_forward",
                 "output_hidden_states",
                 "output_attentions",
                 "add_cross_attention",
                 "tie_encoder_decoder",
                 "aux_loss_alpha",
                 "seq_aux",
                 "hidden_dropout",
                 "embd_pdrop",
                 "resid_pdrop"});
}

Result<attention::RopeSpec::Scaling> scaling_of(const std::string& where, const std::string& name) {
  using Scaling = attention::RopeSpec::Scaling;
  if (name == "default" || name.empty()) return Scaling::none;
  if (name == "linear") return Scaling::linear;
  if (name == "dynamic") return Scaling::dynamic;
  if (name == "yarn") return Scaling::yarn;
  if (name == "llama3") return Scaling::llama3;
  return fail(Code::unsupported,
              "{}: rope type '{}' cannot be run; known: default linear dynamic yarn llama3", where,
              name);
}

Status positive(const ConfigReader& reader, std::string_view key, double value) {
  if (value > 0) return {};
  return fail(Code::bad_file, "{}: key '{}' must be positive, found {}", reader.where(), key,
              value);
}

// The keys inside rope_scaling or rope_parameters.
Status read_scaling(ConfigReader& inner, attention::RopeSpec& rope, int max_positions) {
  using Scaling = attention::RopeSpec::Scaling;
  SWITCHYARD_ASSIGN(const std::string type, inner.text("type", ""));
  SWITCHYARD_ASSIGN(const std::string rope_type, inner.text("rope_type", type));
  SWITCHYARD_ASSIGN(rope.scaling, scaling_of(inner.where(), rope_type));
  SWITCHYARD_ASSIGN(rope.theta, inner.real("rope_theta", rope.theta));
  SWITCHYARD_ASSIGN(const double partial, inner.real("partial_rotary_factor", 1.0));
  if (partial != 1.0) {
    return fail(Code::unsupported, "{}: partial_rotary_factor {} is not part of these families",
                inner.where(), partial);
  }
  SWITCHYARD_ASSIGN(const int original,
                    inner.size("original_max_position_embeddings", max_positions));
  rope.original_positions = original;
  const double default_factor =
      rope.scaling == Scaling::yarn ? static_cast<double>(max_positions) / original : 1.0;
  SWITCHYARD_ASSIGN(rope.factor, inner.real("factor", default_factor));
  SWITCHYARD_TRY(positive(inner, "factor", rope.factor));
  SWITCHYARD_ASSIGN(rope.beta_fast, inner.real("beta_fast", 32.0));
  SWITCHYARD_ASSIGN(rope.beta_slow, inner.real("beta_slow", 1.0));
  SWITCHYARD_ASSIGN(rope.truncate, inner.boolean("truncate", true));
  SWITCHYARD_ASSIGN(rope.mscale, inner.real("mscale", 0.0));
  SWITCHYARD_ASSIGN(rope.mscale_all_dim, inner.real("mscale_all_dim", 0.0));
  if (inner.has("attention_factor")) {
    SWITCHYARD_ASSIGN(rope.attention_factor, inner.real("attention_factor"));
  }
  SWITCHYARD_ASSIGN(rope.low_freq_factor, inner.real("low_freq_factor", 1.0));
  SWITCHYARD_ASSIGN(rope.high_freq_factor, inner.real("high_freq_factor", 4.0));
  SWITCHYARD_TRY(positive(inner, "low_freq_factor", rope.low_freq_factor));
  SWITCHYARD_TRY(positive(inner, "high_freq_factor", rope.high_freq_factor));
  return inner.finish("rope settings");
}

}  // namespace

Result<attention::RopeSpec> read_rope(ConfigReader& reader, double default_theta, int head_dim,
                                      int max_positions) {
  attention::RopeSpec rope;
  rope.rotary_dim = head_dim;
  rope.max_positions = max_positions;
  rope.original_positions = max_positions;
  SWITCHYARD_ASSIGN(rope.theta, reader.real("rope_theta", default_theta));
  // A root-level original length wins over the nested one.
  SWITCHYARD_ASSIGN(const int root_original, reader.count("original_max_position_embeddings", 0));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* member = reader.member(key);
    if (member == nullptr) continue;
    if (!member->is_object()) {
      return fail(Code::bad_file, "{}: key '{}': expected an object, found {}", reader.where(), key,
                  member->kind_name());
    }
    ConfigReader inner(*member, reader.where() + ": " + key);
    SWITCHYARD_TRY(read_scaling(inner, rope, max_positions));
  }
  if (root_original > 0) rope.original_positions = root_original;
  SWITCHYARD_TRY(positive(reader, "rope_theta", rope.theta));
  return rope;
}

Result<Base> read_base(ConfigReader& reader, const BaseDefaults& defaults) {
  ignore_common(reader);
  Base base;
  ModelConfig& config = base.config;
  const Json* classes = reader.member("architectures");
  if (classes != nullptr && classes->is_array() && !classes->as_array().empty() &&
      classes->as_array()[0].is_string()) {
    config.architecture = classes->as_array()[0].as_string();
  }
  SWITCHYARD_ASSIGN(config.width, reader.size("hidden_size"));
  SWITCHYARD_ASSIGN(config.vocab, reader.size("vocab_size"));
  SWITCHYARD_ASSIGN(config.max_positions, reader.size("max_position_embeddings", 2048));
  SWITCHYARD_ASSIGN(const double eps, reader.real("rms_norm_eps", defaults.norm_eps));
  SWITCHYARD_TRY(positive(reader, "rms_norm_eps", eps));
  config.norm_eps = static_cast<float>(eps);
  SWITCHYARD_ASSIGN(config.tied_embedding,
                    reader.boolean("tie_word_embeddings", defaults.tied_embedding));
  SWITCHYARD_ASSIGN(base.num_layers, reader.size("num_hidden_layers"));
  SWITCHYARD_TRY(reader.require_text("hidden_act", "silu", "experts are SwiGLU"));
  SWITCHYARD_ASSIGN(const std::vector<int64_t> eos, reader.integers("eos_token_id"));
  for (const int64_t id : eos) config.eos_ids.push_back(static_cast<int32_t>(id));

  attention::GqaSpec& a = base.attention;
  SWITCHYARD_ASSIGN(a.heads, reader.size("num_attention_heads"));
  SWITCHYARD_ASSIGN(a.kv_heads, reader.size("num_key_value_heads", a.heads));
  if (!reader.has("head_dim") && config.width % a.heads != 0) {
    return fail(Code::bad_file,
                "{}: hidden_size {} is not a multiple of num_attention_heads {} and there is no "
                "head_dim",
                reader.where(), config.width, a.heads);
  }
  SWITCHYARD_ASSIGN(a.head_dim, reader.size("head_dim", config.width / a.heads));
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  SWITCHYARD_ASSIGN(config.rope,
                    read_rope(reader, defaults.rope_theta, a.head_dim, config.max_positions));
  if (const Json* quantization = reader.member("quantization_config"); quantization != nullptr) {
    const Json* method = quantization->find("quant_method");
    return fail(Code::unsupported,
                "{}: quantization '{}' cannot be run; use a checkpoint in bf16, "
                "f16 or f32",
                reader.where(),
                method != nullptr && method->is_string() ? method->as_string() : "unknown");
  }
  return base;
}

Result<int> read_window(ConfigReader& reader) {
  SWITCHYARD_ASSIGN(const int window, reader.count("sliding_window", 0));
  return window;
}

bool SparsePattern::sparse(int64_t layer) const noexcept {
  const bool listed =
      std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
  return !listed && (layer + 1) % step == 0;
}

Result<SparsePattern> read_sparse_pattern(ConfigReader& reader) {
  SparsePattern pattern;
  SWITCHYARD_ASSIGN(pattern.step, reader.integer("decoder_sparse_step", 1, 1 << 20, 1));
  SWITCHYARD_ASSIGN(pattern.dense_layers, reader.integers("mlp_only_layers"));
  return pattern;
}

std::vector<TensorName> with_base_names(std::initializer_list<TensorName> own) {
  std::vector<TensorName> names(std::begin(kBaseNames), std::end(kBaseNames));
  names.insert(names.end(), own.begin(), own.end());
  return names;
}

std::vector<TensorName> with_mlp_expert_names(std::initializer_list<TensorName> own) {
  std::vector<TensorName> names = with_base_names(own);
  names.insert(names.end(), std::begin(kMlpExpertNames), std::end(kMlpExpertNames));
  return names;
}

}  // namespace switchyard::model
