// SPDX-License-Identifier: Apache-2.0
#include "engine/instruments.h"

namespace switchyard::engine {
namespace {

constexpr const char* kStageNames[kNumStages] = {"prefill", "decode", "mixed"};

/// 1, 2, 4 ... up to 2^(count - 1).
std::vector<double> powers_of_two(int count) {
  std::vector<double> bounds;
  bounds.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) bounds.push_back(static_cast<double>(int64_t{1} << i));
  return bounds;
}

/// Even alone first. Neighbours lie at most a quarter apart up to 64, so that no quantile does; E / K of the usual models,
/// the imbalance of every step of one token, are among them: nothing is read above what can be.
std::vector<double> imbalance_bounds() {
  return {1, 1.1, 1.2, 1.35, 1.5, 1.75, 2,  2.25, 2.5, 3,  3.5, 4,  5,  6,  7,
          8, 10,  12,  14,   16,  20,   24, 28,   32,  40, 48,  56, 64, 96, 128};
}

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// The total so far, as the amount to add to a counter that has seen `seen`.
void catch_up(Counter& counter, uint64_t total, uint64_t& seen) {
  if (total > seen) counter.add(total - seen);
  seen = total;
}

}  // namespace

Stage stage_of(const schedule::Decision& decision) {
  if (decision.num_decodes == 0) return Stage::prefill;
  return decision.num_decodes == std::ssize(decision.runs) ? Stage::decode : Stage::mixed;
}

Instruments::ByStage Instruments::by_stage(MetricRegistry& registry, const char* name,
                                           const char* help, const std::vector<double>& bounds) {
  ByStage histograms{};
  for (size_t stage = 0; stage < kNumStages; ++stage)
    histograms[stage] = &registry.histogram(name, help, bounds, {{"stage", kStageNames[stage]}});
  return histograms;
}

Instruments::LayerSeries Instruments::layer_series(MetricRegistry& registry, int layer,
                                                   MetricDetail detail) {
  LayerSeries series;
  // Without it, the layers find each other's counters.
  Labels by_layer;
  if (detail != MetricDetail::off) by_layer.emplace_back("layer", std::to_string(layer));
  for (size_t stage = 0; stage < kNumStages; ++stage) {
    Labels labels = by_layer;
    labels.emplace_back("stage", kStageNames[stage]);
    series.routed[stage] = &registry.counter(
        "switchyard_routed_assignments_total",
        "Token to expert assignments before any drop, by MoE layer and kind of step", labels);
    labels.emplace_back("reason", "capacity");
    series.dropped[stage] = &registry.counter(
        "switchyard_dropped_assignments_total",
        "Assignments without an expert, by MoE layer, kind of step and reason", labels);
  }
  series.unrouted =
      &registry.counter("switchyard_unrouted_tokens_total",
                        "Tokens that a MoE layer's experts all turned away, by layer: they passed "
                        "by on the residual stream",
                        by_layer);
  if (detail == MetricDetail::off) return series;
  series.imbalance =
      &registry.gauge("switchyard_layer_load_imbalance_ratio",
                      "Hottest expert over the mean before any drop, by MoE layer, over about 32 "
                      "steps; 1 is even",
                      by_layer);
  return series;
}

Instruments::Instruments(MetricRegistry& r, int num_moe_layers, MetricDetail detail)
    : running_(r.gauge("switchyard_requests_running", "Requests that take part in steps")),
      waiting_capacity_(r.gauge("switchyard_requests_waiting", "Requests that wait, by reason",
                                {{"reason", "capacity"}})),
      waiting_kv_blocks_(r.gauge("switchyard_requests_waiting", "Requests that wait, by reason",
                                 {{"reason", "kv_blocks"}})),
      preemptions_(r.counter("switchyard_preemptions_total",
                             "Sequences that gave up their KV blocks to those before them")),
      recomputed_tokens_(r.counter("switchyard_recomputed_tokens_total",
                                   "Positions that were computed again after a preemption")),
      held_steps_(r.counter("switchyard_held_steps_total",
                            "Decoding steps that were held back to wait for company")),
      prompt_computed_(r.counter("switchyard_prompt_tokens_total", "Prompt tokens, by source",
                                 {{"source", "computed"}})),
      prompt_cached_(r.counter("switchyard_prompt_tokens_total", "Prompt tokens, by source",
                               {{"source", "cached"}})),
      generation_tokens_(r.counter("switchyard_generation_tokens_total", "Tokens produced")),
      prefix_queries_(r.counter("switchyard_prefix_cache_query_tokens_total",
                                "Prompt tokens that were looked up in the prefix cache")),
      prefix_hits_(r.counter("switchyard_prefix_cache_hit_tokens_total",
                             "Prompt tokens that were found there")),
      evictions_(r.counter("switchyard_prefix_cache_evictions_total",
                           "Cached KV blocks that were emptied for new contents")),
      request_prompt_tokens_(r.histogram("switchyard_request_prompt_tokens",
                                         "Prompt tokens of a finished request", powers_of_two(18))),
      request_generation_tokens_(r.histogram("switchyard_request_generation_tokens",
                                             "Tokens that a finished request produced",
                                             powers_of_two(18))),
      time_to_first_token_(r.histogram("switchyard_time_to_first_token_seconds",
                                       "From submission to the first token", latency_bounds())),
      inter_token_latency_(r.histogram("switchyard_inter_token_latency_seconds",
                                       "Between neighbouring tokens of a request",
                                       latency_bounds())),
      time_per_output_token_(r.histogram("switchyard_time_per_output_token_seconds",
                                         "Mean time between the tokens of a finished request",
                                         latency_bounds())),
      request_duration_(r.histogram("switchyard_request_duration_seconds",
                                    "From submission to the last event", latency_bounds())),
      request_queue_(r.histogram("switchyard_request_queue_seconds",
                                 "From submission to the first step", latency_bounds())),
      request_prefill_(r.histogram("switchyard_request_prefill_seconds",
                                   "From the first step to the first token", latency_bounds())),
      request_decode_(r.histogram("switchyard_request_decode_seconds",
                                  "From the first to the last token", latency_bounds())),
      step_duration_(
          by_stage(r, "switchyard_step_duration_seconds", "Duration of a step", latency_bounds())),
      step_tokens_(by_stage(r, "switchyard_step_tokens", "Tokens of a step", powers_of_two(15))),
      step_sequences_(
          by_stage(r, "switchyard_step_sequences", "Sequences of a step", powers_of_two(11))),
      kv_usage_(r.gauge("switchyard_kv_cache_usage_ratio", "Used share of the KV blocks")),
      kv_free_(r.gauge("switchyard_kv_cache_blocks", "KV blocks, by state", {{"state", "free"}})),
      kv_cached_(
          r.gauge("switchyard_kv_cache_blocks", "KV blocks, by state", {{"state", "cached"}})),
      kv_used_(r.gauge("switchyard_kv_cache_blocks", "KV blocks, by state", {{"state", "used"}})),
      last_experts_(r.gauge("switchyard_last_step_active_experts",
                            "Experts with work in the step before, as the scheduler was told")),
      step_imbalance_(by_stage(r, "switchyard_step_load_imbalance_ratio",
                               "Largest hottest-over-mean of a step over its MoE layers",
                               imbalance_bounds())),
      step_experts_(by_stage(r, "switchyard_step_active_experts",
                             "Experts with work in a step, mean over its MoE layers",
                             powers_of_two(11))),
      non_finite_(r.counter("switchyard_nonfinite_events_total",
                            "Rows with NaN or infinity, by place", {{"where", "logits"}})),
      non_finite_router_(r.counter("switchyard_nonfinite_events_total",
                                   "Rows with NaN or infinity, by place", {{"where", "router"}})) {
  constexpr FinishReason kReasons[] = {FinishReason::stop, FinishReason::length,
                                       FinishReason::cancelled, FinishReason::error};
  for (size_t i = 0; i < finished_.size(); ++i)
    finished_[i] =
        &r.counter("switchyard_requests_finished_total", "Requests that have ended, by reason",
                   {{"finish_reason", finish_reason_name(kReasons[i])}});
  constexpr const char* kRefusals[] = {"queue_full", "queue_tokens", "draining"};
  for (size_t i = 0; i < refused_.size(); ++i)
    refused_[i] =
        &r.counter("switchyard_requests_rejected_total",
                   "Requests that were turned away, by reason", {{"reason", kRefusals[i]}});
  constexpr const char* kDeadlines[] = {"queue", "total"};
  for (size_t i = 0; i < expired_.size(); ++i)
    expired_[i] = &r.counter("switchyard_deadlines_missed_total",
                             "Requests that ended because their time was over, by deadline",
                             {{"deadline", kDeadlines[i]}});
  constexpr const char* kOutcomes[] = {"used", "wasted", "failed"};
  for (size_t i = 0; i < ahead_.size(); ++i)
    ahead_[i] = &r.counter("switchyard_steps_ahead_total",
                           "Steps that a device began before they were asked for, by what became "
                           "of them",
                           {{"outcome", kOutcomes[i]}});
  constexpr const char* kGuesses[] = {"right", "wrong"};
  for (size_t i = 0; i < guesses_.size(); ++i)
    guesses_[i] = &r.counter("switchyard_guessed_picks_total",
                             "Picks that a device guessed before the router, to read their experts "
                             "early, by what the router said",
                             {{"guess", kGuesses[i]}});
  for (int layer = 0; layer < num_moe_layers; ++layer)
    layers_.push_back(layer_series(r, layer, detail));
  for (size_t stage = 0; stage < kNumStages; ++stage)
    for (size_t zone = 0; zone < kNumZones; ++zone)
      phases_[stage][zone] =
          &r.float_counter("switchyard_phase_seconds_total",
                           "Wall time of the phases of steps, by phase and kind of step; only "
                           "while they are profiled",
                           {{"phase", std::string(zone_name(static_cast<Zone>(zone)))},
                            {"stage", kStageNames[stage]}});
}

void Instruments::on_token(const Live& live, int64_t previous_ns, int64_t now_ns) {
  generation_tokens_.add();
  if (previous_ns > 0) {
    inter_token_latency_.observe(seconds(now_ns - previous_ns));
  } else {
    prompt_computed_.add(static_cast<uint64_t>(live.prompt_tokens - live.cached_tokens));
    prompt_cached_.add(static_cast<uint64_t>(live.cached_tokens));
    time_to_first_token_.observe(seconds(now_ns - live.moments.submitted));
  }
}

void Instruments::on_end(FinishReason reason, const RequestTimings& timings, const Moments& moments,
                         int64_t now_ns) {
  finished_[static_cast<size_t>(reason) - 1]->add();
  request_duration_.observe(seconds(now_ns - moments.submitted));
  if (moments.first_run > 0) request_queue_.observe(timings.queue_s);
  if (moments.first_token == 0) return;
  request_prompt_tokens_.observe(timings.prompt_tokens);
  request_generation_tokens_.observe(timings.output_tokens);
  request_prefill_.observe(timings.prefill_s);
  request_decode_.observe(timings.decode_s);
  if (timings.output_tokens > 1)
    time_per_output_token_.observe(timings.decode_s / (timings.output_tokens - 1));
}

void Instruments::on_step(const schedule::Decision& decision, double step_s,
                          const StepRouting& routing, const Statistics& statistics) {
  const auto stage = static_cast<size_t>(stage_of(decision));
  step_duration_[stage]->observe(step_s);
  step_tokens_[stage]->observe(decision.num_tokens);
  step_sequences_[stage]->observe(static_cast<double>(decision.runs.size()));
  last_experts_.set(decision.experts_touched);
  if (routing.worst_imbalance > 0) {
    step_imbalance_[stage]->observe(routing.worst_imbalance);
    step_experts_[stage]->observe(routing.mean_experts);
  }
  catch_up(non_finite_router_, statistics.unusable_rows(), seen_unusable_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int layer = static_cast<int>(i);
    LayerSeries& series = layers_[i];
    catch_up(*series.routed[stage], statistics.layer_picks(layer), series.seen_routed);
    catch_up(*series.dropped[stage], statistics.layer_dropped(layer), series.seen_dropped);
    catch_up(*series.unrouted, statistics.layer_unrouted(layer), series.seen_unrouted);
    if (series.imbalance != nullptr) series.imbalance->set(statistics.recent_imbalance(layer));
  }
}

void Instruments::on_steps_ahead(const model::AheadCounts& counts) {
  catch_up(*ahead_[0], counts.used, seen_ahead_.used);
  catch_up(*ahead_[1], counts.wasted, seen_ahead_.wasted);
  catch_up(*ahead_[2], counts.failed, seen_ahead_.failed);
}

void Instruments::on_guesses(const model::GuessCounts& counts) {
  catch_up(*guesses_[0], counts.right, seen_guesses_.right);
  catch_up(*guesses_[1], counts.wrong, seen_guesses_.wrong);
}

void Instruments::on_phases(Stage stage, const ZoneTimes& times) {
  for (size_t zone = 0; zone < kNumZones; ++zone) {
    const double more = times.seconds[zone] - seen_phases_.seconds[zone];
    if (more > 0) phases_[static_cast<size_t>(stage)][zone]->add(more);
  }
  seen_phases_ = times;
}

void Instruments::on_counts(const schedule::Counts& counts, const schedule::Limits& limits) {
  running_.set(counts.running);
  const bool slots_full = counts.running >= limits.max_sequences;
  waiting_capacity_.set(slots_full ? counts.waiting : 0);
  waiting_kv_blocks_.set(slots_full ? 0 : counts.waiting);
  kv_free_.set(counts.blocks_free);
  kv_cached_.set(counts.blocks_cached);
  kv_used_.set(counts.blocks_used);
  kv_usage_.set(static_cast<double>(counts.blocks_used) / limits.num_blocks);
  catch_up(preemptions_, counts.preemptions, seen_.preemptions);
  catch_up(recomputed_tokens_, counts.recomputed_tokens, seen_.recomputed_tokens);
  catch_up(held_steps_, counts.held_steps, seen_.held_steps);
  catch_up(prefix_queries_, counts.prefix_query_tokens, seen_.prefix_query_tokens);
  catch_up(prefix_hits_, counts.prefix_hit_tokens, seen_.prefix_hit_tokens);
  catch_up(evictions_, counts.evictions, seen_.evictions);
}

}  // namespace switchyard::engine
