// SPDX-License-Identifier: Apache-2.0
// Router: the gate's weights and the algorithm that turns its logits into picks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

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
  const Linear& gate() const noexcept { return gate_; }
  const RouterSpec& spec() const noexcept { return spec_; }

  /// [E] f32, zeros until set; empty without RouterSpec::selection_bias. Training changes it in
  /// place (see selection_bias.h).
  std::span<float> selection_bias() noexcept { return selection_bias_; }
  /// Errors: Code::bad_file for another number of values than E, or for a NaN or +infinity among
  /// them; -infinity is an expert that is picked last.
  Status set_selection_bias(std::span<const float> bias);

  /// Which device of the trained model owned each expert, [E] in [0, num_devices); without it,
  /// equal runs of expert numbers. It decides picks, so it comes with the model and not from where
  /// experts lie today. Errors: Code::bad_request for other sizes or numbers, for a router
  /// without device limit, and when max_devices devices can hold fewer than top_k experts.
  Status set_devices(std::span<const int32_t> device_of);

  /// For routers that draw; the layer and the step's first token come from the step.
  void set_seed(uint64_t seed) noexcept { seed_ = seed; }

  /// K of the routing: top_k, or num_experts where experts choose.
  int columns() const noexcept { return columns_of(*selector_, spec_); }
  /// Most picks that `tokens` tokens make together.
  int64_t most_picks(int64_t tokens) const noexcept;

  /// Picks for x [T, D] f32. The routing's arrays live in the step's arena.
  Routing route(const float* x, int64_t tokens, const Step& step) const;
  int64_t room(const Limits& limits) const noexcept;

 private:
  SelectInput input(const float* logits, int64_t tokens, const Step& step) const noexcept;

  RouterSpec spec_;
  const Selector* selector_ = nullptr;
  Bound<Route> select_;  // the selector, or a kernel that has its picks
  Linear gate_;
  std::vector<float> selection_bias_;  // [E] or empty
  std::vector<int32_t> device_of_;     // [E] or empty
  uint64_t seed_ = 0;
};

}  // namespace switchyard::moe
