// SPDX-License-Identifier: Apache-2.0
// EngineOptions: every knob of the engine, declared once with its default and help.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "switchyard/routing.h"

namespace switchyard {

/// The arithmetic of weights and activations.
enum class Precision : unsigned char { f32, bf16 };

/// How far /metrics goes into routing: sums over the layers, each layer, also every expert, or of each layer the busiest.
enum class MetricDetail : unsigned char { off, layer, expert, top };

/// What a load is doing, for a progress bar.
struct LoadProgress {
  const char* stage = "";  ///< "mapping", "packing experts", ...
  int64_t done_bytes = 0, total_bytes = 0;
};

struct EngineOptions {
  std::string model;         ///< a Hugging Face folder
  std::string random_model;  ///< instead of a folder: random weights of this geometry
  /// Deviations between the experts' mean logits in such a model: 0 loads experts evenly.
  float random_spread = 0.5f;
  std::string device = "cpu";             ///< cpu, cuda or cuda:N
  Precision precision = Precision::bf16;  ///< f32 for exact comparison
  int threads = 0;                        ///< compute threads; 0: one per usable core
  int max_sequences = 16;                 ///< sequences that run in one step
  int max_step_tokens = 512;   ///< token budget of one step: prompts are cut into chunks of this
  int max_model_len = 0;       ///< longest prompt plus output; 0: what the model was made for
  int block_tokens = 0;        ///< positions per KV block; 0: 16 on CPUs, 64 on CUDA devices
  int64_t kv_cache_bytes = 0;  ///< 0: enough for max_sequences of max_model_len, within free memory
  /// Prompts that begin alike share keys and values, as long as the cache keeps them. Never with a capacity_factor: what
  /// one step dropped would go on into later answers.
  bool prefix_cache = true;
  int64_t max_queued_requests = 0;  ///< requests before their first step; 0: no limit
  int64_t max_queued_tokens = 0;    ///< prompt tokens of these; 0: no limit
  double ageing_s = 10;             ///< waiting this long is worth one level of Request::priority
  int min_decode_batch = 0;         ///< steps that only decode wait for this many sequences ...
  double decode_wait_s = 0;         ///< ... but no longer than this; 0: they never wait
  /// Picks that an expert takes in a step, over an even share; 0: all of them (dropless). What does
  /// not fit passes by on the residual stream, so answers then depend on what shares the step.
  float capacity_factor = 0;
  std::string overflow = "drop_lowest";    ///< which picks do not fit: drop_lowest, drop_last
  std::string capacity_rounding = "ceil";  ///< ceil, floor, gshard or tutel (src/moe/capacity.cpp)
  bool profile = false;                    ///< sum the time of every phase
  MetricDetail metric_detail = MetricDetail::layer;
  int metric_top_experts = 8;  ///< of each layer, for MetricDetail::top
  int64_t trace_events = 0;    ///< keep this many zone events for a Chrome trace; 0: none
  /// The routing of every step, called from the loop thread when the step is done. With routed_picks
  /// it holds all picks of all tokens, else counts alone. Tokens from the prefix cache are in no step.
  std::function<void(const RoutedStep&)> on_routed_step;
  bool routed_picks = false;
  /// Asked by the loop thread before each step; what says no is not gathered. Empty: always.
  std::function<bool()> wants_routed_step;
  std::function<void(const LoadProgress&)> on_progress;  ///< called from the loading thread
};

}  // namespace switchyard
