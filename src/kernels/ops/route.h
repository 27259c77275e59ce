// SPDX-License-Identifier: Apache-2.0
// Route: the contract between a gate's logits and the layer. RouterSpec says what a model's gate does, as a value;
// Routing says who got which token. Routing algorithms themselves are defined in moe/route.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/view.h"

namespace switchyard {

enum class Score : uint8_t { softmax, sigmoid, sqrt_softplus };
enum class Weigh : uint8_t {
  raw,                 ///< the score itself
  renormalize,         ///< divided by the sum over the picks
  softmax_after_top_k  ///< top-k of the logits, then softmax over the k
};
enum class Overflow : uint8_t { none, drop_last, drop_lowest };

struct RouterSpec {
  int num_experts = 0, top_k = 0;
  std::string_view selector = "token_choice";  ///< a name in moe/route/table
  Score score = Score::softmax;
  Weigh weigh = Weigh::raw;
  float renormalize_epsilon = 0;  ///< added to the sum (1e-20 in DeepSeek)
  float scale = 1;                ///< routed scaling factor
  bool selection_bias = false;    ///< bias steers selection, never the weight
  float noise = 0;                ///< standard deviation; 0 when serving
  int num_groups = 1, top_groups = 1;
  int max_devices = 0;        ///< device-limited; 0 is no limit
  float capacity_factor = 0;  ///< 0 is dropless
  Overflow overflow = Overflow::none;

  /// Refuses a spec that means nothing (top_k above num_experts, groups that do not divide, ...) as
  /// Code::bad_request, naming the rule.
  Status check() const;
};

/// Logical: says who, not where.
struct Routing {
  TensorView expert;  ///< [T, K] i32, -1 where dropped; by falling score, ties to the lower expert
  TensorView weight;  ///< [T, K] f32
  TensorView load;    ///< [E] i32: picks per expert
};

}  // namespace switchyard
