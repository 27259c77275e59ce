// SPDX-License-Identifier: Apache-2.0
#include "engine/recorder.h"

#include <utility>

#include "base/check.h"

namespace switchyard::engine {
namespace {

template <class T>
std::span<const T> copy(const TensorView& view, std::vector<T>& into) {
  const T* const first = view.as<T>();
  into.assign(first, first + view.shape.elements());
  return into;
}

}  // namespace

Recorder::Recorder(RoutingSink sink, RoutingDetail detail, int num_layers,
                   model::RoutingObserver& next)
    : sink_(std::move(sink)),
      detail_(detail),
      next_(next),
      copies_(static_cast<size_t>(num_layers)),
      layers_(static_cast<size_t>(num_layers)) {}

void Recorder::begin_step(const schedule::Decision& decision, std::span<const Live* const> live,
                          StepStage stage) {
  SWITCHYARD_CHECK(decision.runs.size() == live.size(), "{} runs of {} requests",
                   decision.runs.size(), live.size());
  sequences_.clear();
  for (size_t i = 0; i < live.size(); ++i) {
    const schedule::Decision::Run& run = decision.runs[i];
    sequences_.push_back({run.id, live[i]->topic, run.first_token, run.num_tokens});
  }
  step_ = {stage, decision.num_tokens, sequences_, layers_};
  layers_seen_ = 0;
}

void Recorder::on_routing(int moe_layer, const Routing& routing) {
  next_.on_routing(moe_layer, routing);
  const auto index = static_cast<size_t>(moe_layer);
  SWITCHYARD_CHECK(index < layers_.size(), "MoE layer {} of {}", moe_layer, layers_.size());
  Copy& to = copies_[index];
  RoutedLayer& layer = layers_[index];
  layer.demand = copy(routing.demand, to.demand);
  layer.dropped = routing.counts.dropped;
  ++layers_seen_;
  if (detail_ == RoutingDetail::counts) return;
  layer.picks = copy(routing.expert, to.picks);
  layer.weights = copy(routing.weight, to.weights);
}

void Recorder::end_step() {
  if (layers_seen_ == layers_.size()) sink_(step_);
}

}  // namespace switchyard::engine
