// SPDX-License-Identifier: Apache-2.0
// The experts of one MoE block on the device: which kernel runs them, and the routing that they leave behind.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda.h"
#include "kernels/ops/moe_ffn.h"
#include "model/config.h"
#include "model/cuda/weights.h"

namespace switchyard::model::cuda {

/// What the layers of a step share: they run one after the other.
struct ExpertScratch {
  CudaMemory workspace;     ///< of the fast kernels
  CudaMemory rows;          ///< pick_row, row_token, slot_offset, hit, num_hit, unusable, sync
  CudaMemory plain_hidden;  ///< [T, K, F] f32 of the plain kernel
};

/// One call.
struct ExpertCall {
  const void* x = nullptr;        ///< [T, D] in the precision of the run
  const float* logits = nullptr;  ///< [T, E]
  int64_t tokens = 0;
  int32_t* expert = nullptr;  ///< [T, K] out
  float* weight = nullptr;    ///< [T, K] out
  float scale = 1;
  float* y = nullptr;                ///< [T, D]: the residual stream
  const float* next_norm = nullptr;  ///< [D], or null
  float next_epsilon = 0;
  void* next_x = nullptr;  ///< [T, D] bf16, only where writes_next() says so
};

class Experts {
 public:
  /// Chooses the kernels. Errors: Code::unsupported for routings that the device does not do.
  static Result<Experts> create(const RouterSpec& router, int64_t width, int64_t ffn_width,
                                DType dtype, int64_t max_tokens, int compute_capability);

  ExpertLayout layout() const noexcept {
    return packed_ ? ExpertLayout::packed : ExpertLayout::plain;
  }
  std::string_view name() const noexcept;
  /// The call writes next_x too.
  bool writes_next() const noexcept { return packed_; }
  /// Grows the scratch to what this layer needs.
  Status reserve(ExpertScratch& scratch, CudaStream& stream) const;
  void run(const BlockWeights& weights, const ExpertCall& call, const ExpertScratch& scratch,
           CudaStreamHandle stream) const;

 private:
  void run_plain(const BlockWeights& weights, const ExpertCall& call, const ExpertScratch& scratch,
                 CudaStreamHandle stream) const;

  RouterSpec router_;
  DType dtype_ = DType::bf16;
  MoeFfn::Problem problem_;
  int compute_capability_ = 0;
  bool packed_ = false;                  // a fast kernel takes every number of tokens
  const MoeFfn::Kernel* few_ = nullptr;  // the one for a single token
};

}  // namespace switchyard::model::cuda
