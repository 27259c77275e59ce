// SPDX-License-Identifier: Apache-2.0
// The norm, the gate and the picks of up to 512 tokens in one launch, on Hopper alone (norm_gate_sm90a.cu); elsewhere norm_rows, two
// products, and scoring by MoeRoute.
#pragma once
#include "kernels/cuda/step.h"
#include "kernels/ops/moe_route.h"

namespace switchyard::cuda {

/// Where picks go, so that MoeRoute::run with `scored` has only rows to give out.
struct GateScores {
  RouteRule rule;
  int32_t* expert = nullptr;    ///< [T, K]; null: no picks are made
  float* weight = nullptr;      ///< [T, K]
  int32_t* unusable = nullptr;  ///< [1], added to
  int32_t* counts = nullptr;    ///< [ceil(T / 32), E] picks: MoeRoute's workspace
};

/// logits[t, e] = gate[e] . rms_norm(x[t]), from gates in parts as split_gate makes them.
struct NormGateParts {
  NormRows norm;                    ///< row and y_split are null
  const void* gate_high = nullptr;  ///< [E, 2 D] bf16: high | high
  const void* gate_low = nullptr;   ///< [E, D] bf16, or null where all of it is zero
  int num_experts = 0;
  float* logits = nullptr;  ///< [T, E]
  GateScores scores = {};
};
/// False for more tokens than one wave of blocks takes, and for widths and devices that it cannot do.
bool norm_gate_parts_accepts(const NormGateParts& args) noexcept;
void norm_gate_parts(const NormGateParts& args, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
