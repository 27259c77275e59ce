// SPDX-License-Identifier: Apache-2.0
// A random MoE layer on the device, for tests: everything a call needs, guarded and poisoned.
#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "cases/moe_ffn.h"
#include "kernels/cuda_memory.h"
#include "kernels/cuda_moe_reference.h"
#include "kernels/ops/moe_ffn.h"

namespace switchyard::testing {

/// Logits [T, E] whose best experts follow the popularity; ties do not occur.
std::vector<float> random_logits(cases::Popularity popularity, int64_t tokens, int experts,
                                 int top_k, std::mt19937& random);

struct RoutingArrays {
  RoutingArrays(int64_t tokens, const RouteRule& rule);
  DeviceRouting view() const;
  void poison();
  bool guards_are_intact() const;

  DeviceArray<int32_t> expert, pick_row, row_token, slot_offset, hit, num_hit, unusable;
  DeviceArray<float> weight;
};

/// Sides of the L2 as they could be: to kernels any bits of an address are right that have bit 12. As an H200 has them, or others.
L2Sides some_sides(uint32_t mask = 0xab000);

struct MoeLayerOnDevice {
  MoeLayerOnDevice(const cases::MoeFfnCase& which, unsigned seed, int sm);

  /// From now on calls get weights that are placed by these sides; none: as they were at first.
  void place_by(const L2Sides& to);
  MoeFfn::Args args();
  /// Fills what a call writes with NaN (y with its values before) and runs `kernel`.
  void run(const MoeFfn::Kernel& kernel);
  /// y after, by the reference, with the picks that are in `routing` now.
  std::vector<double> reference();
  bool guards_are_intact() const;

  MoeFfn::Problem problem;
  int64_t tokens;
  std::vector<float> logits_before, y_before, norm_weights;
  DeviceArray<float> logits, y, shared, shared_weight, next_norm;
  DeviceArray<float> up_bias, down_bias;  // of the experts
  DeviceArray<uint16_t> x, gate, up, down, next_x;
  DeviceArray<int32_t> live;
  DeviceBytes w13, w2, workspace, sync;
  std::optional<DeviceBytes> placed;  // both matrices
  char *w13_in_use, *w2_in_use;
  L2Sides sides;
  RoutingArrays routing;
  bool with_shared, with_norm, with_bias;
  /// The call gets the picks that are in `routing` instead of logits.
  bool picks_are_given = false;

 private:
  void pack(char* w13_to, char* w2_to);
};

}  // namespace switchyard::testing
