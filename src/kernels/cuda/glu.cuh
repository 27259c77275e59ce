// SPDX-License-Identifier: Apache-2.0
// act(gate) * up, in f32.
#pragma once
#include "kernels/ops/moe_ffn.h"

namespace switchyard::cuda {

__device__ __forceinline__ float glu(GluActivation activation, float gate, float up) {
  switch (activation) {
    case GluActivation::swiglu:
      return gate / (1.0f + __expf(-gate)) * up;
    case GluActivation::geglu_tanh: {
      const float inner = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
      return 0.5f * gate * (1.0f + tanhf(inner)) * up;
    }
    case GluActivation::geglu_erf:
      return 0.5f * gate * (1.0f + erff(gate * 0.7071067812f)) * up;
    case GluActivation::reglu:
      return fmaxf(gate, 0.0f) * up;
  }
  return 0;
}

/// All activations as one formula, gate * sigmoid(gate * (a + q (b + c q))) with q = min(gate^2, 36): for epilogues that
/// hold so many values that a switch for each would not fit.
struct GluCurve {
  float a = 1, b = 0, c = 0;
};

/// silu and gelu by tanh are of this form; relu is in the limit of a steep sigmoid; gelu by erf to 2.6e-5 (a fit of the
/// log odds of the normal distribution), a hundredth of what rounding to bf16 costs.
inline GluCurve glu_curve(GluActivation activation) noexcept {
  switch (activation) {
    case GluActivation::swiglu:
      break;
    case GluActivation::geglu_tanh:
      return {1.5957691216f, 0.0713548163f, 0};
    case GluActivation::geglu_erf:
      return {1.59501516f, 0.0740119977f, -0.000703186560f};
    case GluActivation::reglu:
      return {1e36f, 0, 0};
  }
  return {};
}

}  // namespace switchyard::cuda
