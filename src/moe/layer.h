// SPDX-License-Identifier: Apache-2.0
// The MoE layer: route, limit the load, plan, dispatch, experts, combine.
#pragma once
#include <memory>
#include <optional>

#include "base/result.h"
#include "moe/exchange/exchange.h"
#include "moe/experts.h"
#include "moe/route/router.h"
#include "moe/step.h"

namespace switchyard::moe {

struct LayerSpec {
  RouterSpec router;
  int64_t width = 0;         ///< D
  int64_t ffn_width = 0;     ///< F
  int64_t shared_width = 0;  ///< 0: no shared experts
  bool shared_gated = false;
  float residual_scale = 1;
  DType weight = DType::bf16;
};

class Layer {
 public:
  static Result<Layer> create(const LayerSpec& spec, const Limits& limits);

  /// y[t] += residual_scale * (routed(x[t]) + shared(x[t])) for x [T, D] f32, normed; y [T, D] f32.
  /// Returns the routing, whose arrays live in the step's arena.
  Routing forward(const float* x, int64_t tokens, float* y, const Step& step);

  Router& router() noexcept { return router_; }
  Experts& experts() noexcept { return experts_; }
  const Experts& experts() const noexcept { return experts_; }
  Experts* shared() noexcept { return shared_ ? &*shared_ : nullptr; }
  /// [1, D] gate of the shared experts, or null when they are not gated.
  Linear* shared_gate() noexcept { return shared_gate_ ? &*shared_gate_ : nullptr; }
  int64_t room(const Limits& limits) const noexcept;

 private:
  SharedOutput run_shared(const float* x, int64_t tokens, const Step& step) const;

  LayerSpec spec_;
  Router router_;
  std::unique_ptr<Exchange> exchange_;
  Experts experts_;
  std::optional<Experts> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace switchyard::moe
