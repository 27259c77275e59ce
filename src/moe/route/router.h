// SPDX-License-Identifier: Apache-2.0
// Router: the gate's weights and the algorithm that turns its logits into picks.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "kernels/linear.h"
#include "kernels/ops/route.h"
#include "moe/route/table.h"
#include "moe/step.h"

namespace switchyard::moe {

class Router {
 public:
  /// Errors: Code::unsupported or bad_request from the spec's check.
  static Result<Router> create(const RouterSpec& spec, int64_t width, const Limits& limits);

  /// The gate's weights [E, D]. Kept in f32 whatever the model's precision: near-ties decide who
  /// works, and the product is small.
  Linear& gate() noexcept { return gate_; }
  const RouterSpec& spec() const noexcept { return spec_; }

  /// Picks for x [T, D] f32. The routing's arrays live in the step's arena.
  Routing route(const float* x, int64_t tokens, const Step& step) const;
  int64_t room(const Limits& limits) const noexcept;

 private:
  RouterSpec spec_;
  const Selector* selector_ = nullptr;
  Linear gate_;
};

}  // namespace switchyard::moe
