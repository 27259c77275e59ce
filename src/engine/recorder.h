// SPDX-License-Identifier: Apache-2.0
// Recorder: keeps every layer's routing of a step, which lives no longer than its layer, and gives
// all of it to a sink when the step is done. Sees what Statistics sees: it stands before it and
// passes everything on. Loop thread alone; a warm step allocates nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "switchyard/routing.h"

#include "engine/live.h"
#include "model/step.h"
#include "schedule/scheduler.h"

namespace switchyard::engine {

using RoutingSink = std::function<void(const RoutedStep&)>;
enum class RoutingDetail : uint8_t { counts, picks };

class Recorder final : public model::RoutingObserver {
 public:
  /// num_layers: MoE layers. `next` must outlive it.
  Recorder(RoutingSink sink, RoutingDetail detail, int num_layers, model::RoutingObserver& next);

  /// live[i] is the request of decision.runs[i].
  void begin_step(const schedule::Decision& decision, std::span<const Live* const> live,
                  StepStage stage);
  void on_routing(int moe_layer, const Routing& routing) override;
  bool wants_picks() const override {
    return detail_ != RoutingDetail::counts || next_.wants_picks();
  }
  /// Calls the sink, unless the step failed before its last layer.
  void end_step();

 private:
  /// A layer's arrays, copied.
  struct Copy {
    std::vector<int32_t> demand, picks;
    std::vector<float> weights;
  };

  RoutingSink sink_;
  RoutingDetail detail_;
  model::RoutingObserver& next_;
  std::vector<Copy> copies_;               // [MoE layers]
  std::vector<RoutedLayer> layers_;        // [MoE layers]
  std::vector<RoutedSequence> sequences_;  // [B]
  RoutedStep step_;
  size_t layers_seen_ = 0;
};

}  // namespace switchyard::engine
