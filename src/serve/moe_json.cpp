// SPDX-License-Identifier: Apache-2.0
#include "serve/moe_json.h"

#include <numeric>

#include "base/json.h"

namespace switchyard::serve {
namespace {

template <class T>
T at_or_zero(const std::vector<T>& values, size_t i) {
  return i < values.size() ? values[i] : T{0};
}

uint64_t sum(const std::vector<uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

void write_layer(JsonWriter& json, const EngineStats& stats, size_t layer) {
  json.begin_object().field("moe_layer", static_cast<int64_t>(layer));
  json.field("assignments", sum(stats.load[layer]));
  json.field("dropped", at_or_zero(stats.dropped, layer));
  json.field("steps", at_or_zero(stats.layer_steps, layer));
  json.field("imbalance", at_or_zero(stats.imbalance, layer));
  json.field("experts_touched", at_or_zero(stats.experts_touched, layer));
  json.key("load").begin_array();
  for (const uint64_t picks : stats.load[layer]) json.unsigned_integer(picks);
  json.end_array().end_object();
}

}  // namespace

std::string moe_json(const ModelSummary& summary, const EngineStats& stats, double start_time_s) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "moe.stats").field("start_time", start_time_s);
  json.field("moe_layers", summary.moe_layers).field("experts", summary.experts);
  json.field("top_k", summary.top_k).field("steps", stats.steps);
  json.field("step_seconds", stats.step_s).field("prompt_tokens", stats.prompt_tokens);
  json.field("cached_tokens", stats.cached_tokens).field("output_tokens", stats.output_tokens);
  json.field("preemptions", stats.preemptions).field("unusable_rows", stats.unusable_rows);
  uint64_t assignments = 0;
  for (const auto& load : stats.load) assignments += sum(load);
  const uint64_t dropped = sum(stats.dropped);
  json.field("assignments", assignments).field("dropped", dropped);
  json.field("drop_rate", assignments == 0
                              ? 0.0
                              : static_cast<double>(dropped) / static_cast<double>(assignments));
  json.field("unrouted_tokens", stats.unrouted_tokens);
  json.key("layers").begin_array();
  for (size_t layer = 0; layer < stats.load.size(); ++layer) write_layer(json, stats, layer);
  json.end_array().key("phases").begin_array();
  for (const auto& [name, seconds] : stats.phase_s)
    json.begin_object().field("name", name).field("seconds", seconds).end_object();
  json.end_array().end_object();
  return out;
}

std::string placement_json(const ModelSummary& summary, const EngineStats& stats) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "moe.placement").field("strategy", "single");
  json.field("moe_layers", summary.moe_layers).field("experts", summary.experts);
  json.field("num_ranks", 1).field("num_replicas", 0);
  json.key("ranks").begin_array().begin_object().field("rank", 0);
  json.field("device", summary.device).field("expert_bytes", summary.expert_bytes);
  json.end_object().end_array().key("placement").begin_array();
  for (const auto& load : stats.load) {
    json.begin_array().begin_array();
    for (size_t e = 0; e < load.size(); ++e) json.integer(static_cast<int64_t>(e));
    json.end_array().end_array();
  }
  json.end_array().end_object();
  return out;
}

}  // namespace switchyard::serve
