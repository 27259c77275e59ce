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

/// Most experts of one layer: what a token's row needs stands in arrays of this size on the stack.
inline constexpr int kMaxExperts = 2048;

/// s(z) of a logit z.
enum class Score : uint8_t {
  softmax,       ///< e^z / sum over all experts
  sigmoid,       ///< 1 / (1 + e^-z)
  sqrt_softplus  ///< sqrt(ln(1 + e^z)) (DeepSeek-V4)
};
enum class Weigh : uint8_t {
  raw,                 ///< the score itself
  renormalize,         ///< divided by the norm of the picks' scores
  softmax_after_top_k  ///< top-k of the logits, then softmax over the k
};
/// How the experts of a group make the group's score.
enum class GroupScore : uint8_t {
  max,       ///< the best of the group (DeepSeek-V2)
  sum_top_2  ///< the sum of its two best (DeepSeek-V3)
};
enum class Overflow : uint8_t { none, drop_last, drop_lowest };

/// The divisor of Weigh::renormalize is max(|w|_p + epsilon, minimum) over the picks' scores w.
struct RouterSpec {
  int num_experts = 0, top_k = 0;
  std::string_view selector = "token_choice";  ///< a name in moe/route/table
  Score score = Score::softmax;
  Weigh weigh = Weigh::raw;
  float renormalize_epsilon = 0;  ///< added to the norm (1e-20 in DeepSeek)
  float renormalize_minimum = 0;  ///< least divisor (1e-12 in ERNIE 4.5)
  float norm_order = 1;           ///< p: 1 is the sum (DBRX names its own)
  float scale = 1;                ///< routed scaling factor
  bool selection_bias = false;    ///< bias steers selection, never the weight
  float noise = 0;                ///< factor of the noise's deviation; 0 when serving
  float jitter = 0;               ///< relative threshold of sparsemixer
  bool random_second = false;     ///< GShard: the second expert stays by chance; off when serving
  bool weight_on_input = false;   ///< the weight scales what the expert reads, not what it gives
  int num_groups = 1, top_groups = 1;
  GroupScore group_score = GroupScore::max;
  int num_devices = 1;  ///< that the experts were divided among when the model was trained
  int max_devices = 0;  ///< most of them that a token's picks lie on; 0 is no limit
  /// The configuration says that the model was trained with picks that depend on other tokens.
  bool trained_across_tokens = false;
  float capacity_factor = 0;                    ///< 0 is dropless
  std::string_view capacity_rounding = "ceil";  ///< a name in moe/capacity
  Overflow overflow = Overflow::none;

  /// Refuses a spec that means nothing (top_k above num_experts, groups that do not divide, ...) as
  /// Code::bad_request, naming the rule.
  Status check() const;
};

/// What became of a step's picks.
struct RouteCounts {
  int64_t dropped = 0;          ///< picks without a place
  int64_t unrouted_tokens = 0;  ///< tokens that lost every pick
  int64_t unusable_rows = 0;    ///< tokens whose logits held a NaN or +inf: weight 0
};

/// Logical: says who, not where.
struct Routing {
  TensorView expert;  ///< [T, K] i32, -1 where dropped; by falling score, ties to the lower expert
  TensorView weight;  ///< [T, K] f32
  TensorView load;    ///< [E] i32: picks per expert that have a place
  TensorView demand;  ///< [E] i32: picks per expert before any drop; the same array when dropless
  RouteCounts counts;
};

}  // namespace switchyard
