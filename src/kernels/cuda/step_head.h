// SPDX-License-Identifier: Apache-2.0
// The last norm of a step of few tokens, its logits, and the token of each row's largest (step_head_sm90a.cu). Device code includes this
// header.
#pragma once
#include <cstdint>

#include "kernels/cuda/step.h"

namespace switchyard::cuda {

struct StepHead {
  const float* x = nullptr;      ///< [*, D]: the residual stream
  const int32_t* row = nullptr;  ///< [N]: whose logits are wanted
  const float* norm = nullptr;   ///< [D]
  const void* table = nullptr;   ///< [V, D] in dtype
  DType dtype = DType::bf16;
  int64_t tokens = 0, width = 0, vocab = 0;  ///< N, D, V
  float epsilon = 1e-6f;
  float scale = 1;
  float* logits = nullptr;    ///< [N, V]
  int32_t* pick = nullptr;    ///< [N] as Sample::pick of greedy rows; or null
  void* workspace = nullptr;  ///< step_head_workspace() bytes, zeroed once
};
/// bf16, at most 8 tokens, D of 1024 to 4096 in steps of 1024, Hopper.
bool step_head_accepts(const StepHead& args) noexcept;
int64_t step_head_workspace() noexcept;
/// Queued, chained; allocates nothing.
void step_head(const StepHead& args, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
