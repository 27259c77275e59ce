// SPDX-License-Identifier: Apache-2.0
// The temporaries of a step on the device, sized once for the largest step.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "device/cuda.h"
#include "model/cuda/experts.h"
#include "model/model.h"

namespace switchyard::model::cuda {

struct Buffers {
  CudaMemory memory;
  float* x = nullptr;              ///< [T, D] the residual stream
  std::byte* rows = nullptr;       ///< [T, D] in the precision of the run: what products read
  std::byte* next_rows = nullptr;  ///< the same for the next block, while this block's are read
  float* normed = nullptr;         ///< [T, D] f32: what gates read
  std::byte* split = nullptr;      ///< [T, 2 D] bf16: the same in two parts, of runs in bf16
  float* qkv = nullptr;            ///< [T, (H + 2 G) Z], also in bf16
  std::byte* q = nullptr;          ///< [T, H, Z]
  std::byte* mixed = nullptr;      ///< [T, H, Z]
  float* wide = nullptr;           ///< [T, 2 F] of dense layers and shared experts
  std::byte* hidden = nullptr;     ///< [T, F]
  float* shared_weight = nullptr;  ///< [T]
  float* gate = nullptr;           ///< [T, E]
  int32_t* results = nullptr;      ///< picks of tokens and experts: see StepResults
  std::byte* head_rows = nullptr;  ///< [N, D]
  float* logits = nullptr;         ///< [N, V]
  CudaMemory attention_workspace;  ///< zeroed once
  CudaMemory head_words;           ///< PrepareHeads::words, zeroed once
  ExpertScratch experts;
  int64_t logit_rows = 0;  ///< most N, padded
  int64_t picks = 0;       ///< most entries of StepResults::expert: MoE layers * T * K

  int64_t bytes() const noexcept {
    return memory.size() + attention_workspace.size() + head_words.size() +
           experts.workspace.size() + experts.rows.size() + experts.plain_hidden.size();
  }
  static Result<Buffers> create(const ModelConfig& config, const LoadOptions& options,
                                int64_t attention_bytes);
};

/// Where results of a step stand, on the device and on the host alike: one behind the other, so that one copy brings them.
struct StepResults {
  int32_t* pick = nullptr;    ///< [N] tokens
  int32_t* expert = nullptr;  ///< [MoE layers, T, K]
  float* weight = nullptr;    ///< [MoE layers, T, K]
  int64_t bytes = 0;          ///< of all

  /// `picks` is MoE layers * T * K of the step.
  StepResults(int32_t* base, int64_t rows, int64_t picks)
      : pick(base),
        expert(base + rows),
        weight(reinterpret_cast<float*>(expert + picks)),
        bytes((rows + 2 * picks) * 4) {}
};

/// What is copied to the host after a step, for those who ask.
struct HostResults {
  PinnedMemory logits;   ///< [N, V] f32
  PinnedMemory results;  ///< StepResults

  static Result<HostResults> create(const ModelConfig& config, const LoadOptions& options,
                                    const Buffers& buffers);
};

}  // namespace switchyard::model::cuda
