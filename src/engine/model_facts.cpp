// SPDX-License-Identifier: Apache-2.0
#include "engine/model_facts.h"

#include <string>

#include "switchyard/version.h"

namespace switchyard::engine {
namespace {

const RouterSpec* first_router(const model::ModelConfig& config) {
  for (const model::BlockSpec& block : config.blocks)
    if (block.router) return &*block.router;
  return nullptr;
}

}  // namespace

ModelSummary summarize(const model::Model& model, const MemoryPlan& plan,
                       const EngineOptions& options, int num_threads) {
  const model::ModelConfig& config = model.config();
  const model::ParameterCount parameters = model::count_parameters(config);
  ModelSummary summary;
  summary.architecture = config.architecture;
  summary.layers = static_cast<int>(config.blocks.size());
  summary.moe_layers = config.num_moe_blocks();
  if (const RouterSpec* router = first_router(config)) {
    summary.experts = router->num_experts;
    summary.top_k = router->top_k;
  }
  summary.total_parameters = parameters.total;
  summary.active_parameters = parameters.active;
  summary.weight_bytes = model.memory().weights;
  summary.expert_bytes = model.memory().experts;
  summary.copy_bytes = model.memory().copies;
  summary.placed_bytes = model.memory().placed;
  summary.kv_cache_bytes = model.memory().kv_cache;
  if (!config.tied_embedding)
    summary.lookup_bytes =
        int64_t{config.vocab} * config.width * dtype_bytes(precision_dtype(options.precision));
  summary.kv_tokens = int64_t{plan.num_blocks} * options.block_tokens;
  summary.max_model_len = plan.max_model_len;
  summary.vocab = config.vocab;
  summary.threads = num_threads;
  summary.device = options.device;
  summary.kernel = std::string(model.expert_kernel());
  return summary;
}

void register_facts(MetricRegistry& registry, const ModelSummary& summary,
                    const model::ModelConfig& config, const model::MemoryFacts& memory,
                    const EngineOptions& options) {
  const auto memory_bytes = [&](const char* kind, int64_t bytes) {
    registry
        .gauge("switchyard_memory_bytes", "Memory that the engine holds, by kind",
               {{"device", options.device}, {"kind", kind}})
        .set(static_cast<double>(bytes));
  };
  memory_bytes("weights", memory.weights);
  memory_bytes("kv", memory.kv_cache);
  memory_bytes("activations", memory.arena);
  const model::ParameterCount count = model::count_parameters(config);
  const int bytes_each = dtype_bytes(precision_dtype(options.precision));
  const auto weights_bytes = [&](const char* part, int64_t parameters) {
    registry
        .gauge("switchyard_model_weights_bytes",
               "Weights by part of the model, as parameters times the size of one",
               {{"part", part}})
        .set(static_cast<double>(parameters * bytes_each));
  };
  weights_bytes("expert", count.experts);
  weights_bytes("shared_expert", count.shared);
  weights_bytes("attention", count.attention);
  weights_bytes("embedding", count.embedding);
  weights_bytes("other",
                count.total - count.experts - count.shared - count.attention - count.embedding);
  registry.gauge("switchyard_model_load_duration_seconds", "From open to ready")
      .set(summary.load_s);
  registry
      .gauge("switchyard_capacity_factor_ratio",
             "Expert capacity over an even share; 0: no token is dropped")
      .set(static_cast<double>(options.capacity_factor));
  registry.gauge("switchyard_build_info", "The program", {{"version", kVersion}}).set(1);
  registry
      .gauge("switchyard_config_info", "The model",
             {{"model", summary.architecture},
              {"quant", options.precision == Precision::f32 ? "f32" : "bf16"},
              {"experts", std::to_string(summary.experts)},
              {"top_k", std::to_string(summary.top_k)},
              {"placement", "single"}})
      .set(1);
}

}  // namespace switchyard::engine
