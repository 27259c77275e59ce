// SPDX-License-Identifier: Apache-2.0
#include "serve/routing_record.h"

#include <utility>

#include "switchyard/version.h"

#include "base/json.h"

namespace switchyard::serve {
namespace {

constexpr std::string_view kStages[] = {"prefill", "decode", "mixed"};  // by StepStage

void add_all(std::vector<uint64_t>& sums, const std::vector<uint64_t>& more) {
  if (sums.size() < more.size()) sums.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

void write_counts(JsonWriter& json, const std::vector<uint64_t>& counts, size_t layers,
                  size_t experts) {
  json.key("counts").begin_array();
  for (size_t l = 0; l < layers; ++l) {
    json.begin_array();
    for (size_t e = 0; e < experts; ++e) {
      const size_t at = l * experts + e;
      json.unsigned_integer(at < counts.size() ? counts[at] : 0);
    }
    json.end_array();
  }
  json.end_array();
}

}  // namespace

std::optional<std::string_view> RoutingRecord::known_stage(std::string_view name) {
  if (name == "all") return "all";
  for (const std::string_view stage : kStages)
    if (name == stage) return stage;
  return std::nullopt;
}

bool RoutingRecord::start(std::string_view stage) {
  const std::lock_guard lock(mutex_);
  if (wanted()) return false;
  stage_ = *known_stage(stage);
  steps_ = tokens_ = 0;
  window_steps_ = 1;
  windows_.clear();
  dropped_.clear();
  any_ = true;
  wanted_ = true;
  return true;
}

bool RoutingRecord::stop() {
  const std::lock_guard lock(mutex_);
  return wanted_.exchange(false);
}

RoutingRecord::State RoutingRecord::state() const {
  const std::lock_guard lock(mutex_);
  return {wanted(), any_, steps_, tokens_, stage_.data()};
}

RoutingRecord::Window& RoutingRecord::current() {
  if (!windows_.empty() && windows_.back().steps < window_steps_) return windows_.back();
  if (windows_.size() == kMostWindows) {
    for (size_t i = 0; i < kMostWindows / 2; ++i) {
      Window joined = std::move(windows_[2 * i]);
      const Window& next = windows_[2 * i + 1];
      joined.steps += next.steps;
      joined.tokens += next.tokens;
      add_all(joined.counts, next.counts);
      windows_[i] = std::move(joined);
    }
    windows_.resize(kMostWindows / 2);
    window_steps_ *= 2;
  }
  return windows_.emplace_back();
}

void RoutingRecord::push(const RoutedStep& step) {
  const std::lock_guard lock(mutex_);
  if (!wanted() || step.layers.empty()) return;
  if (stage_ != "all" && stage_ != kStages[static_cast<size_t>(step.stage)]) return;
  add(current(), step);
}

void RoutingRecord::add(Window& window, const RoutedStep& step) {
  num_experts_ = step.layers.front().demand.size();
  const size_t layers = step.layers.size();
  window.counts.resize(layers * num_experts_);
  dropped_.resize(layers);
  for (size_t l = 0; l < layers; ++l) {
    const RoutedLayer& layer = step.layers[l];
    uint64_t* const counts = window.counts.data() + l * num_experts_;
    for (size_t e = 0; e < std::min(layer.demand.size(), num_experts_); ++e)
      counts[e] += static_cast<uint64_t>(layer.demand[e]);
    dropped_[l] += static_cast<uint64_t>(layer.dropped);
  }
  ++window.steps;
  ++steps_;
  window.tokens += step.tokens;
  tokens_ += step.tokens;
}

std::string RoutingRecord::dump(const ModelSummary& summary, std::string_view model,
                                std::string_view model_hash) const {
  const std::lock_guard lock(mutex_);
  const auto layers = static_cast<size_t>(summary.moe_layers);
  const auto experts = static_cast<size_t>(summary.experts);
  std::vector<uint64_t> sums;
  for (const Window& window : windows_) add_all(sums, window.counts);
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("format", kExpertLoadFormat).field("version", kExpertLoadVersion);
  json.field("model", model).field("model_hash", model_hash);
  json.field("producer", std::string("switchyard ") + kVersion);
  json.field("num_moe_layers", summary.moe_layers).field("num_experts", summary.experts);
  json.field("top_k", summary.top_k).field("stage", stage_);
  json.field("steps", steps_).field("tokens", tokens_).key("dropped").begin_array();
  for (size_t l = 0; l < layers; ++l) json.unsigned_integer(l < dropped_.size() ? dropped_[l] : 0);
  json.end_array();
  write_counts(json, sums, layers, experts);
  json.key("windows").begin_array();
  for (const Window& window : windows_) {
    json.begin_object().field("steps", window.steps).field("tokens", window.tokens);
    write_counts(json, window.counts, layers, experts);
    json.end_object();
  }
  json.end_array().end_object();
  return out;
}

}  // namespace switchyard::serve
