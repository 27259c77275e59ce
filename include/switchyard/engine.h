// SPDX-License-Identifier: Apache-2.0
// Engine: opens a model and answers requests, many at once, on a loop thread of its own.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "switchyard/options.h"
#include "switchyard/request.h"
#include "switchyard/result.h"

namespace switchyard {

/// Facts of the opened model, for a summary.
struct ModelSummary {
  std::string architecture;  ///< "Qwen3MoeForCausalLM"
  int layers = 0, moe_layers = 0, experts = 0, top_k = 0;
  int64_t total_parameters = 0, active_parameters = 0;
  int64_t weight_bytes = 0, expert_bytes = 0, kv_cache_bytes = 0;
  /// Part of weight_bytes: weights that are there in another form, too, so that no step reads both.
  int64_t copy_bytes = 0;
  /// Of the experts: those that lie by the sides of a device's L2 (docs/decisions/0012).
  int64_t placed_bytes = 0;
  int64_t lookup_bytes =
      0;  ///< of an embedding that is not the head too: part of weight_bytes, hardly read
  int64_t kv_tokens = 0;  ///< positions that the cache holds
  int max_model_len = 0, vocab = 0, threads = 0;
  std::string device;         ///< "cpu", "cuda:1"
  std::string kernel;         ///< the grouped GEMM that was chosen
  std::string chat_template;  ///< where the chat template came from; empty: none
  double load_s = 0;
};

/// Sums since open (or the last reset), over all requests.
struct EngineStats {
  uint64_t steps = 0, prompt_tokens = 0, output_tokens = 0, preemptions = 0;
  uint64_t cached_tokens = 0;               ///< of prompt_tokens: found in the prefix cache
  double step_s = 0;                        ///< wall time inside steps
  std::vector<std::vector<uint64_t>> load;  ///< [MoE layer][expert] picks, before any drop
  /// [MoE layer] mean over its layer_steps of hottest / mean of the picks, before any drop
  std::vector<double> imbalance;
  std::vector<double> experts_touched;  ///< [MoE layer] mean over its layer_steps
  /// [MoE layer] steps that had picks in it. Not `steps`: while a step runs its first layers have it already.
  std::vector<uint64_t> layer_steps;
  std::vector<uint64_t> dropped;  ///< [MoE layer] picks without a place; empty when dropless
  uint64_t unrouted_tokens = 0;   ///< lost all their picks in a layer; summed over layers
  uint64_t unusable_rows = 0;     ///< a layer's router gave them NaN or +inf; summed over layers
  std::vector<std::pair<std::string, double>> phase_s;  ///< seconds by phase; empty unless profile
  /// [layer][phase], the phases of phase_s in order: what of them lay in that layer. Empty unless profile.
  std::vector<std::vector<double>> layer_phase_s;
};

/// Whether the loop lives and gets on: while there are requests, `steps` must rise.
struct EngineHealth {
  std::string death;     ///< why the loop has ended by itself; empty: it lives
  int64_t requests = 0;  ///< submitted and not ended
  uint64_t steps = 0;    ///< ended since open
};

class Engine {
 public:
  /// Loads the model and starts the loop. Errors: bad_file, unsupported, out_of_memory, each saying
  /// what to do.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  virtual ~Engine() = default;

  /// Validates, tokenizes and queues; `sink` is then called from the loop thread, in order, until
  /// the last event. Errors: bad_request (parameters, an empty prompt, a prompt that does not fit),
  /// overloaded (the queue is full; nothing has been done for the request), unavailable (draining or
  /// stopping).
  virtual Result<RequestId> submit(Request request, std::function<void(const Event&)> sink) = 0;
  /// Ends a request early; its last event says cancelled. Unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;
  /// Blocks until every submitted request has ended. Not from a sink.
  virtual void wait_idle() = 0;
  /// The same, for no longer than that: false when requests are left.
  virtual bool wait_idle_for(double seconds) = 0;
  /// From now on new requests are refused as unavailable; those that are in go on.
  virtual void drain() = 0;
  /// Any thread, also while a step hangs. After a death, requests are refused as unavailable.
  virtual EngineHealth health() const = 0;

  /// The tokens that submit() would make of this request's input. Any thread. Errors: bad_request.
  virtual Result<std::vector<int32_t>> tokenize(const Request& request) const = 0;
  /// The text of which they are the tokens: of messages, what the chat template makes of them. Errors: bad_request.
  virtual Result<std::string> render(const Request& request) const = 0;
  /// Their text, special tokens included. Errors: bad_request for ids that the vocabulary lacks.
  virtual Result<std::string> detokenize(std::span<const int32_t> tokens) const = 0;
  /// What a token adds to a text, as bytes, maybe half a character; of a special token its name.
  virtual std::string token_bytes(int32_t token) const = 0;
  /// How the model writes calls of tools. Errors: unsupported when its chat template does not show it.
  virtual Result<ToolFormat> tool_format() const = 0;
  /// Whether the chat template reads a variable of that name.
  virtual bool template_reads(const std::string& variable) const = 0;

  virtual const ModelSummary& summary() const = 0;
  /// The model's own defaults (generation_config.json) as sampling parameters.
  virtual SamplingParams default_sampling() const = 0;
  virtual EngineStats stats() const = 0;
  virtual void reset_stats() = 0;
  /// Sums the time of phases from now on, or stops: EngineOptions::profile while the engine runs.
  virtual void set_profile(bool on) = 0;
  /// Chrome trace JSON of the events kept so far (EngineOptions::trace_events).
  virtual std::string chrome_trace() const = 0;
  /// Prometheus text (exposition format 0.0.4).
  virtual std::string metrics_text() const = 0;
};

}  // namespace switchyard
