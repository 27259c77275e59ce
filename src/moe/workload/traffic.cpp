// SPDX-License-Identifier: Apache-2.0
#include "moe/workload/traffic.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "moe/workload/draw.h"

namespace switchyard::moe {
namespace {

/// The file of "trace:FILE" or "trace-mixed:FILE".
std::optional<std::string_view> trace_path(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

Status check_trace(const TraceReader& trace, const std::string& path, int num_experts, int top_k) {
  const TraceHeader& header = trace.header();
  if (header.num_experts != num_experts || header.top_k != top_k) {
    return fail(Code::bad_request,
                "{}: recorded from {} experts with {} picks a token, but the shape has {} with {}: "
                "choose the shape of the recorded model",
                path, header.num_experts, header.top_k, num_experts, top_k);
  }
  if (trace.num_tokens() == 0 || header.num_layers == 0) {
    return fail(Code::bad_request, "{}: the recording holds no token", path);
  }
  return {};
}

}  // namespace

Result<Traffic> Traffic::open(std::string_view text, int num_experts, int top_k, uint64_t seed) {
  Traffic traffic;
  traffic.text_ = text;
  traffic.num_experts_ = num_experts;
  traffic.top_k_ = top_k;
  traffic.seed_ = seed;
  auto path = trace_path(text, "trace:");
  if (!path) {
    path = trace_path(text, "trace-mixed:");
    traffic.mixed_ = path.has_value();
  }
  if (!path) {
    auto popularity = Popularity::parse(text);
    if (!popularity.ok()) {
      Error error = popularity.error();
      error.message += ", trace:FILE, trace-mixed:FILE";
      return error;
    }
    traffic.popularity_ = *popularity;
    return traffic;
  }
  SWITCHYARD_ASSIGN(TraceReader trace, TraceReader::open(std::string(*path)));
  SWITCHYARD_TRY(check_trace(trace, std::string(*path), num_experts, top_k));
  traffic.trace_ = std::make_shared<const TraceReader>(std::move(trace));
  traffic.step_start_.push_back(0);
  for (int64_t i = 0; i < traffic.trace_->num_steps(); ++i) {
    const int64_t tokens = traffic.trace_->step(i).num_tokens();
    if (tokens == 0) continue;
    traffic.step_index_.push_back(i);
    traffic.step_start_.push_back(traffic.step_start_.back() + tokens);
  }
  return traffic;
}

Picks Traffic::draw(int layer, int64_t tokens, uint32_t step) const {
  if (trace_) {
    return trace_->header().has_picks ? replay(layer, tokens, step) : resample(layer, tokens, step);
  }
  // A layer is a seed of its own: its popular experts and its draws are its own.
  const uint64_t seed = seed_ + (static_cast<uint64_t>(layer) << 32);
  const auto weights = popularity_.weights(num_experts_, seed);
  return {
      draw_weighted(weights, tokens, top_k_, seed, step),
      std::vector<float>(static_cast<size_t>(tokens * top_k_), 1.0f / static_cast<float>(top_k_))};
}

Traffic::Place Traffic::find_token(int64_t index) const {
  const auto after = std::upper_bound(step_start_.begin(), step_start_.end(), index);
  const auto step = static_cast<size_t>(after - step_start_.begin()) - 1;
  return {step_index_[step], index - step_start_[step]};
}

Picks Traffic::replay(int layer, int64_t tokens, uint32_t step) const {
  Picks picks;
  const int recorded_layer = layer % trace_->header().num_layers;
  const int64_t total = trace_->num_tokens();
  for (int64_t t = 0; t < tokens; ++t) {
    int64_t index = (step * tokens + t) % total;
    if (mixed_) {  // the same tokens in every layer: it is one batch
      const PhiloxBlock counter{static_cast<uint32_t>(t), step, 0, kMixedStream};
      index = static_cast<int64_t>(unit_draw(seed_, counter) * static_cast<double>(total));
    }
    const Place place = find_token(index);
    const TraceStep recorded = trace_->step(place.step);
    const auto experts = recorded.picks(recorded_layer);
    const auto weights = recorded.weights(recorded_layer);
    for (int64_t i = place.token * top_k_; i < (place.token + 1) * top_k_; ++i) {
      const uint16_t e = experts[static_cast<size_t>(i)];
      picks.expert.push_back(e == kDroppedPick ? -1 : e);
      picks.weight.push_back(weights[static_cast<size_t>(i)]);
    }
  }
  return picks;
}

Picks Traffic::resample(int layer, int64_t tokens, uint32_t step) const {
  const auto count = static_cast<int64_t>(step_index_.size());
  int64_t which = step % count;
  if (mixed_) {
    which = static_cast<int64_t>(unit_draw(seed_, {0, step, 0, kMixedStream}) *
                                 static_cast<double>(count));
  }
  const TraceStep recorded = trace_->step(step_index_[static_cast<size_t>(which)]);
  const auto demand = recorded.demand(layer % trace_->header().num_layers);
  std::vector<double> inclusion;
  for (const uint32_t n : demand) {
    inclusion.push_back(static_cast<double>(n) / static_cast<double>(recorded.num_tokens()));
  }
  return {
      draw_systematic(inclusion, tokens, top_k_, seed_ + (static_cast<uint64_t>(layer) << 32),
                      step),
      std::vector<float>(static_cast<size_t>(tokens * top_k_), 1.0f / static_cast<float>(top_k_))};
}

}  // namespace switchyard::moe
