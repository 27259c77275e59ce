// SPDX-License-Identifier: Apache-2.0
// What a routing algorithm reads and writes.
#pragma once
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "kernels/ops/route.h"

namespace switchyard::moe {

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

struct Selector {
  std::string_view name;
  std::string_view help;  ///< one line for `switchyard inspect tables`
  /// Refuses specs that mean nothing (Code::bad_request) or something else (Code::unsupported).
  Status (*check)(const RouterSpec&);
  /// Returns how many rows were unusable: they held a NaN or +infinity, or nothing but -infinity.
  /// Such a row picks experts 0..K-1 with weight 0. No allocation.
  int64_t (*select)(const RouterSpec&, const SelectInput&, const SelectOutput&, const Stream&);
  /// The columns K of the output; null: top_k.
  int (*columns)(const RouterSpec&) = nullptr;
};

/// The output's columns and the most picks that `tokens` tokens make together.
inline int columns_of(const Selector& selector, const RouterSpec& spec) {
  return selector.columns != nullptr ? selector.columns(spec) : spec.top_k;
}

}  // namespace switchyard::moe
