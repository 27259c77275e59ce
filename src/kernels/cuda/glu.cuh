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

}  // namespace switchyard::cuda
