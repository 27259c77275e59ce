// SPDX-License-Identifier: Apache-2.0
// The norm, the gate, the picks of some hundred tokens and the order of their rows in one launch, on Hopper alone (norm_gate_sm90a.cu);
// elsewhere norm_rows, two products, and MoeRoute.
#pragma once
#include "kernels/cuda/step.h"
#include "kernels/ops/moe_route.h"

namespace switchyard::cuda {

/// Where picks and the order of rows go, so that nothing is left to MoeRoute::run.
struct GateScores {
  static constexpr int kWords = 1 + 640 * 8;
  RouteRule rule;
  DeviceRouting routing;
  uint64_t* words =
      nullptr;  ///< [kWords], zero when created; of one call at a time. Null: no picks are made
};

/// logits[t, e] = gate[e] . rms_norm(x[t]), from gates in parts as split_gate makes them: complete before the launch in front of this one
/// has begun, as is the norm's weight.
struct NormGateParts {
  NormRows norm;                    ///< row and y_split are null
  const void* gate_high = nullptr;  ///< [E, 2 D] bf16: high | high
  const void* gate_low = nullptr;   ///< [E, D] bf16, or null where all of it is zero
  int num_experts = 0;
  float* logits = nullptr;  ///< [T, E]
  GateScores scores = {};
  /// What a later launch reads and nobody writes: each block asks for 128 KiB of it.
  const void* next = nullptr;
  int64_t next_bytes = 0;
};
/// False for more tokens than one wave of blocks takes (600 on an H200), and for widths and devices that it cannot do.
bool norm_gate_parts_accepts(const NormGateParts& args) noexcept;
/// Blocks of its launch, each on a multiprocessor of its own.
int norm_gate_blocks(int64_t tokens) noexcept;
void norm_gate_parts(const NormGateParts& args, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
