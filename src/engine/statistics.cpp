// SPDX-License-Identifier: Apache-2.0
#include "engine/statistics.h"

#include <algorithm>

#include "base/check.h"

namespace switchyard::engine {
namespace {

constexpr double kRecentSteps = 32;

template <class T>
T relaxed(const std::atomic<T>& value) {
  return value.load(std::memory_order_relaxed);
}

std::vector<size_t> first_slots(const std::vector<int>& experts) {
  std::vector<size_t> first{0};
  for (const int count : experts) first.push_back(first.back() + static_cast<size_t>(count));
  return first;
}

}  // namespace

Statistics::Statistics(std::vector<int> experts, float capacity_factor)
    : experts_(std::move(experts)),
      first_slot_(first_slots(experts_)),
      layers_(experts_.size()),
      drops_(capacity_factor),
      load_(first_slot_.back()),
      base_(sums()) {}

void Statistics::begin_step(std::span<const int32_t> seq_offset, std::span<PickCounts* const> picks,
                            std::span<const int32_t> skip) {
  SWITCHYARD_CHECK(seq_offset.size() == picks.size() + 1 && skip.size() == picks.size(),
                   "{} offsets and {} to skip for {} sequences", seq_offset.size(), skip.size(),
                   picks.size());
  seq_offset_ = seq_offset;
  picks_ = picks;
  skip_ = skip;
  counts_picks_ = std::any_of(picks.begin(), picks.end(),
                              [](const PickCounts* counts) { return !counts->empty(); });
  step_ = {};
  step_layers_ = 0;
}

void Statistics::on_routing(int moe_layer, const Routing& routing) {
  SWITCHYARD_CHECK(moe_layer >= 0 && moe_layer < num_layers(), "MoE layer {} of {}", moe_layer,
                   num_layers());
  const int64_t tokens = routing.expert.shape[0], top_k = routing.expert.shape[1];
  SWITCHYARD_CHECK(seq_offset_.back() == tokens, "routing of {} tokens in a step of {}", tokens,
                   seq_offset_.back());
  if (counts_picks_) count_picks(moe_layer, routing.expert.as<int32_t>(), top_k);
  Layer& layer = layers_[static_cast<size_t>(moe_layer)];
  bump(layer.dropped, static_cast<uint64_t>(routing.counts.dropped));
  bump(layer.unrouted, static_cast<uint64_t>(routing.counts.unrouted_tokens));
  bump(unusable_, static_cast<uint64_t>(routing.counts.unusable_rows));
  const std::span<const int32_t> demand(routing.demand.as<int32_t>(),
                                        static_cast<size_t>(experts(moe_layer)));
  add_demand(moe_layer, demand);
  drops_.add(demand, routing.counts.dropped);
}

void Statistics::count_picks(int moe_layer, const int32_t* expert, int64_t top_k) {
  for (size_t b = 0; b < picks_.size(); ++b) {
    if (picks_[b]->empty()) continue;
    uint32_t* count = picks_[b]->data() + slot(moe_layer, 0);
    const int32_t* const end = expert + seq_offset_[b + 1] * top_k;
    for (const int32_t* at = expert + (seq_offset_[b] + skip_[b]) * top_k; at < end; ++at) {
      if (*at >= 0) ++count[*at];
    }
  }
}

void Statistics::add_demand(int moe_layer, std::span<const int32_t> demand) {
  Layer& layer = layers_[static_cast<size_t>(moe_layer)];
  const int num_experts = experts(moe_layer);
  int64_t total = 0;
  int hottest = 0, touched = 0;
  for (const int32_t picks : demand) {
    total += picks;
    hottest = std::max(hottest, picks);
    touched += picks > 0 ? 1 : 0;
  }
  // In a loop of its own: the one above becomes vector code, and of many experts a decode step touches few.
  std::atomic<uint64_t>* const load = load_.data() + slot(moe_layer, 0);
  for (size_t e = 0; e < demand.size(); ++e)
    if (demand[e] != 0) bump(load[e], static_cast<uint64_t>(demand[e]));
  if (total == 0) return;
  const double imbalance = static_cast<double>(hottest) * num_experts / static_cast<double>(total);
  const double recent = relaxed(layer.recent_imbalance);
  layer.recent_imbalance.store(
      recent > 0 ? recent + (imbalance - recent) / kRecentSteps : imbalance,
      std::memory_order_relaxed);
  bump(layer.picks, static_cast<uint64_t>(total));
  bump(layer.imbalance_sum, imbalance);
  bump(layer.touched_sum, static_cast<double>(touched));
  bump(layer.steps, uint64_t{1});
  step_.worst_imbalance = std::max(step_.worst_imbalance, imbalance);
  step_.mean_experts += touched;
  ++step_layers_;
}

StepRouting Statistics::end_step(double seconds) {
  bump(steps_, uint64_t{1});
  bump(step_s_, seconds);
  drops_.end_step();
  if (step_layers_ > 0) step_.mean_experts /= step_layers_;
  return step_;
}

RequestMoe Statistics::request_moe(const PickCounts& picks) const {
  RequestMoe moe;
  for (int layer = 0; layer < num_layers(); ++layer) {
    const auto first = picks.begin() + static_cast<std::ptrdiff_t>(slot(layer, 0));
    moe.picks.emplace_back(first, first + experts(layer));
  }
  return moe;
}

double Statistics::recent_imbalance(int moe_layer) const {
  return relaxed(layers_[static_cast<size_t>(moe_layer)].recent_imbalance);
}

uint64_t Statistics::layer_picks(int moe_layer) const {
  return relaxed(layers_[static_cast<size_t>(moe_layer)].picks);
}

uint64_t Statistics::expert_picks(int moe_layer, int expert) const {
  return relaxed(load_[slot(moe_layer, expert)]);
}

uint64_t Statistics::layer_dropped(int moe_layer) const {
  return relaxed(layers_[static_cast<size_t>(moe_layer)].dropped);
}

uint64_t Statistics::layer_unrouted(int moe_layer) const {
  return relaxed(layers_[static_cast<size_t>(moe_layer)].unrouted);
}

uint64_t Statistics::unusable_rows() const { return relaxed(unusable_); }

Statistics::Sums Statistics::sums() const {
  Sums sums;
  sums.steps = relaxed(steps_);
  sums.prompt_tokens = relaxed(prompt_tokens_);
  sums.cached_tokens = relaxed(cached_tokens_);
  sums.output_tokens = relaxed(output_tokens_);
  sums.preemptions = relaxed(preemptions_);
  sums.step_s = relaxed(step_s_);
  sums.unusable = relaxed(unusable_);
  for (const auto& count : load_) sums.load.push_back(relaxed(count));
  for (const Layer& layer : layers_) {
    sums.dropped.push_back(relaxed(layer.dropped));
    sums.unrouted += relaxed(layer.unrouted);
    sums.imbalance.push_back(relaxed(layer.imbalance_sum));
    sums.touched.push_back(relaxed(layer.touched_sum));
    sums.num_steps.push_back(static_cast<double>(relaxed(layer.steps)));
  }
  return sums;
}

EngineStats Statistics::read() const {
  const std::lock_guard lock(base_mutex_);
  const Sums now = sums();
  EngineStats stats;
  stats.steps = now.steps - base_.steps;
  stats.prompt_tokens = now.prompt_tokens - base_.prompt_tokens;
  stats.cached_tokens = now.cached_tokens - base_.cached_tokens;
  stats.output_tokens = now.output_tokens - base_.output_tokens;
  stats.preemptions = now.preemptions - base_.preemptions;
  stats.step_s = now.step_s - base_.step_s;
  stats.unrouted_tokens = now.unrouted - base_.unrouted;
  stats.unusable_rows = now.unusable - base_.unusable;
  for (int layer = 0; layer < num_layers(); ++layer) {
    const auto l = static_cast<size_t>(layer);
    const double counted = now.num_steps[l] - base_.num_steps[l], steps = std::max(counted, 1.0);
    stats.layer_steps.push_back(static_cast<uint64_t>(counted));
    stats.imbalance.push_back((now.imbalance[l] - base_.imbalance[l]) / steps);
    stats.experts_touched.push_back((now.touched[l] - base_.touched[l]) / steps);
    if (drops_.can_drop()) stats.dropped.push_back(now.dropped[l] - base_.dropped[l]);
    auto& load = stats.load.emplace_back();
    for (int e = 0; e < experts(layer); ++e)
      load.push_back(now.load[slot(layer, e)] - base_.load[slot(layer, e)]);
  }
  return stats;
}

void Statistics::reset() {
  const std::lock_guard lock(base_mutex_);
  base_ = sums();
}

}  // namespace switchyard::engine
