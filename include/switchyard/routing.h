// SPDX-License-Identifier: Apache-2.0
// What a step's routing looked like, for a recorder: EngineOptions::on_routed_step.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "switchyard/request.h"

namespace switchyard {

/// What a step was made of: prompts alone, one new token for each sequence, or both.
enum class StepStage : unsigned char { prefill, decode, mixed };

/// One sequence's part of a step.
struct RoutedSequence {
  RequestId request = 0;
  std::string_view topic;  ///< Request::topic
  int first_position = 0;  ///< of its tokens in the sequence
  int tokens = 0;
};

/// One MoE layer. T tokens of the step, E experts, K picks a token.
struct RoutedLayer {
  std::span<const int32_t> demand;  ///< [E] picks of each expert before any drop
  int64_t dropped = 0;              ///< picks that found no place
  std::span<const int32_t> picks;   ///< [T, K] experts, -1 where dropped; empty unless asked for
  std::span<const float> weights;   ///< [T, K]; empty unless asked for
};

/// All of it is borrowed, and valid during the call.
struct RoutedStep {
  StepStage stage = StepStage::prefill;
  int64_t tokens = 0;                         ///< T
  std::span<const RoutedSequence> sequences;  ///< in token order; their tokens sum to T
  std::span<const RoutedLayer> layers;        ///< MoE layers alone
};

}  // namespace switchyard
