// SPDX-License-Identifier: Apache-2.0
#include "serve/routing_record.h"

#include <algorithm>
#include <utility>

#include "switchyard/version.h"

#include "base/json.h"

namespace switchyard::serve {
namespace {

constexpr std::string_view kStages[] = {"prefill", "decode", "mixed"};  // by StepStage

void write_counts(JsonWriter& json, const uint64_t* counts, size_t layers, size_t experts) {
  json.key("counts").begin_array();
  for (size_t l = 0; l < layers; ++l) {
    json.begin_array();
    for (size_t e = 0; e < experts; ++e) json.unsigned_integer(counts[l * experts + e]);
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

RoutingRecord::Recorded::Recorded(std::string_view of_stage, size_t of_layers, size_t of_experts)
    : stage(of_stage),
      layers(of_layers),
      experts(of_experts),
      counts(kMostWindows * of_layers * of_experts),
      dropped(of_layers) {
  windows.reserve(kMostWindows);
}

// What was recorded before is freed, and the new allocated, without the lock that the engine's loop waits for.
bool RoutingRecord::start(std::string_view stage, int moe_layers, int experts) {
  Recorded next(*known_stage(stage), static_cast<size_t>(moe_layers), static_cast<size_t>(experts));
  const std::lock_guard lock(mutex_);
  if (wanted()) return false;
  std::swap(now_, next);
  window_steps_ = 1;
  joined_ = 0;
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
  return {wanted(), any_, now_.steps, now_.tokens, now_.stage.data()};
}

RoutingRecord::Window& RoutingRecord::current() {
  std::vector<Window>& windows = now_.windows;
  if (!windows.empty() && windows.back().steps < window_steps_) return windows.back();
  if (windows.size() < kMostWindows) return windows.emplace_back(Window{windows.size(), 0, 0});
  if (joined_ == windows.size()) joined_ = 0;
  if (joined_ == 0) window_steps_ *= 2;
  join_next_pair();
  return windows.back();
}

/// The second of the pair becomes the newest window, empty. After 32 pairs the windows in front and the 32 new ones are
/// equally long.
void RoutingRecord::join_next_pair() {
  std::vector<Window>& windows = now_.windows;
  Window& first = windows[joined_];
  Window second = windows[joined_ + 1];
  uint64_t* const from = now_.of(second);
  uint64_t* const to = now_.of(first);
  for (size_t i = 0; i < now_.size(); ++i) to[i] += std::exchange(from[i], 0);
  first.steps += second.steps;
  first.tokens += second.tokens;
  windows.erase(windows.begin() + static_cast<std::ptrdiff_t>(joined_) + 1);
  windows.push_back({second.slot, 0, 0});
  if (++joined_ == kMostWindows / 2) joined_ = windows.size();
}

bool RoutingRecord::fits(const RoutedStep& step) const {
  if (now_.stage != "all" && now_.stage != kStages[static_cast<size_t>(step.stage)]) return false;
  return !step.layers.empty() && step.layers.size() == now_.layers;
}

void RoutingRecord::push(const RoutedStep& step) {
  const std::lock_guard lock(mutex_);
  if (wanted() && fits(step)) add(current(), step);
}

void RoutingRecord::add(Window& window, const RoutedStep& step) {
  for (size_t l = 0; l < now_.layers; ++l) {
    const RoutedLayer& layer = step.layers[l];
    uint64_t* const counts = now_.of(window) + l * now_.experts;
    for (size_t e = 0; e < std::min(layer.demand.size(), now_.experts); ++e)
      counts[e] += static_cast<uint64_t>(layer.demand[e]);
    now_.dropped[l] += static_cast<uint64_t>(layer.dropped);
  }
  ++window.steps;
  ++now_.steps;
  window.tokens += step.tokens;
  now_.tokens += step.tokens;
}

/// Its memory is there, and touched, before the lock is taken: what remains is a copy of L x E x 64 numbers.
RoutingRecord::Recorded RoutingRecord::copy() const {
  std::unique_lock lock(mutex_);
  const size_t layers = now_.layers, experts = now_.experts;
  lock.unlock();
  Recorded copy("all", layers, experts);
  lock.lock();
  copy = now_;
  return copy;
}

std::string RoutingRecord::dump(const ModelSummary& summary, std::string_view model,
                                std::string_view model_hash) const {
  const Recorded recorded = copy();
  std::vector<uint64_t> sums(recorded.size());
  for (const Window& window : recorded.windows)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += recorded.of(window)[i];
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("format", kExpertLoadFormat).field("version", kExpertLoadVersion);
  json.field("model", model).field("model_hash", model_hash);
  json.field("producer", std::string("switchyard ") + kVersion);
  json.field("num_moe_layers", static_cast<int64_t>(recorded.layers));
  json.field("num_experts", static_cast<int64_t>(recorded.experts));
  json.field("top_k", summary.top_k).field("stage", recorded.stage);
  json.field("steps", recorded.steps).field("tokens", recorded.tokens);
  json.key("dropped").begin_array();
  for (const uint64_t dropped : recorded.dropped) json.unsigned_integer(dropped);
  json.end_array();
  write_counts(json, sums.data(), recorded.layers, recorded.experts);
  json.key("windows").begin_array();
  for (const Window& window : recorded.windows) {
    json.begin_object().field("steps", window.steps).field("tokens", window.tokens);
    write_counts(json, recorded.of(window), recorded.layers, recorded.experts);
    json.end_object();
  }
  json.end_array().end_object();
  return out;
}

}  // namespace switchyard::serve
