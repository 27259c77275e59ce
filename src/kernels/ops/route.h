// SPDX-License-Identifier: Apache-2.0
// Route: the contract between a gate's logits and the layer. RouterSpec says what a model's gate does, as a value;
// Routing says who got which token. Routing algorithms themselves are defined in moe/route; the kernels of the
// operation imitate the commonest of them, with the same picks.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/op.h"
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
  TensorView demand{};  ///< [E] i32: picks per expert before any drop; the same array when dropless
  RouteCounts counts{};
};

/// Where a token's random numbers come from: they depend on (seed, layer, number of the token)
/// alone, so that neither threads nor the cutting of a batch change a pick.
struct RandomPlace {
  uint64_t seed = 0;
  uint32_t layer = 0;
  uint64_t first_token = 0;  ///< number of the call's first token; the others follow
};

struct SelectInput {
  const float* logits = nullptr;  ///< [T, E] f32
  int64_t tokens = 0;             ///< T
  const float* bias = nullptr;    ///< [E] f32, with RouterSpec::selection_bias
  const int32_t* device_of =
      nullptr;  ///< [E] i32 in [0, num_devices); null: equal runs of expert numbers
  const float* noise_logits = nullptr;  ///< [T, E] f32 of the noise gate; null: deviation 1
  RandomPlace random = {};
};

struct SelectOutput {
  int32_t* expert = nullptr;  ///< [T, K] i32 by falling score, ties to the lower expert; -1: none
  float* weight = nullptr;    ///< [T, K] f32; 0 where there is no pick
};

/// An algorithm of moe/route. Returns how many rows were unusable: they held a NaN or +infinity, or
/// nothing but -infinity. Such a row picks experts 0..K-1 with weight 0. No allocation.
using SelectFunction = int64_t(const RouterSpec&, const SelectInput&, const SelectOutput&,
                               const Stream&);

/// Picks and weights of logits. Every kernel has the picks of the reference, bit for bit, and its
/// weights but for rounding.
struct Route {
  struct Problem {
    RouterSpec spec;
    SelectFunction* reference = nullptr;  ///< what route.ref runs: the selector of the spec
  };
  struct Args {
    SelectInput in;
    SelectOutput out;
    int64_t* unusable_rows = nullptr;
  };
  using Packing = NoPacking;
};

/// The score of one logit in f32; for softmax before the division by the sum over all experts.
inline float score_of(Score score, float z, float highest) noexcept {
  if (score == Score::softmax) return std::exp(z - highest);
  if (score == Score::sigmoid) return 1.0f / (1.0f + std::exp(-z));
  return std::sqrt(std::max(z, 0.0f) + std::log1p(std::exp(-std::abs(z))));
}

/// What experts with a selection bias are picked by; a NaN of the bias is picked last.
inline float choice_of(float score, float bias) noexcept {
  const float choice = score + bias;
  return choice == choice ? choice : -std::numeric_limits<float>::infinity();
}

/// Whether finish_weights() needs the softmax' sum over all experts.
bool weighs_by_sum(const RouterSpec& spec) noexcept;

/// Turns the scores of K picks, score_of() each, into weights. `sum` is the softmax' sum over all
/// experts when weighs_by_sum(), else 1.
void finish_weights(const RouterSpec& spec, float sum, float* weight) noexcept;

}  // namespace switchyard
