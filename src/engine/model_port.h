// SPDX-License-Identifier: Apache-2.0
// ModelPort: all that the loop needs of a model. A real Model stands behind it in api.cpp, a
// scripted one in tests.
#pragma once
#include "base/result.h"
#include "model/step.h"

namespace switchyard::engine {

class ModelPort {
 public:
  virtual ~ModelPort() = default;
  /// One step; the logits or picks are valid, and may be changed, until the next call.
  virtual Result<model::StepOutput> forward(const model::StepInput& input,
                                            model::RoutingObserver* observer) = 0;
  /// As model::Model.
  virtual bool can_pick() const noexcept { return false; }
  virtual Result<TensorView> read_logits() {
    return fail(Code::internal, "this model gives its logits with each step");
  }
  virtual model::AheadCounts steps_ahead() const noexcept { return {}; }
  virtual model::GuessCounts guesses() const noexcept { return {}; }
  virtual void between_steps() = 0;
};

}  // namespace switchyard::engine
