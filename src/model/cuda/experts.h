// SPDX-License-Identifier: Apache-2.0
// The experts of one MoE block on the device: who routes, which kernel runs them, and the routing that they leave behind.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda.h"
#include "kernels/cuda/gate_entries.h"
#include "kernels/cuda/moe_entries.h"
#include "kernels/ops/moe_ffn.h"
#include "model/config.h"
#include "model/cuda/host_routing.h"
#include "model/cuda/weights.h"

namespace switchyard::model::cuda {

/// What the layers of a step share: they run one after the other.
struct ExpertScratch {
  CudaMemory workspace;  ///< of the fast kernels
  CudaMemory rows;       ///< pick_row, row_token, slot_offset, hit, num_hit, unusable, sync, words
  CudaMemory plain_hidden;  ///< [T, K, F] f32 of the plain kernel
  HostRouting host;         ///< for routers of the host
};

/// One call.
struct ExpertCall {
  const void* x = nullptr;        ///< [T, D] in the precision of the run
  const float* logits = nullptr;  ///< [T, E]
  const float* bias = nullptr;    ///< [E] of the selection, or null
  int64_t tokens = 0;
  int32_t* expert = nullptr;  ///< [T, columns()] out
  float* weight = nullptr;    ///< [T, columns()] out
  float scale = 1;
  float* y = nullptr;                ///< [T, D]: the residual stream
  const float* next_norm = nullptr;  ///< [D], or null
  float next_epsilon = 0;
  void* next_x = nullptr;  ///< [T, D] bf16, only where writes_next() says so
  int layer = 0;           ///< for routers that draw
  bool routed = false;     ///< scores() got the picks and their rows
};

class Experts {
 public:
  /// Chooses the kernels. Errors: those of the selector's check.
  static Result<Experts> create(const RouterSpec& router, int64_t width, int64_t ffn_width,
                                DType dtype, int64_t max_tokens, int compute_capability);
  /// K of the picks: top_k, or the number of experts where those choose.
  static int columns_of(const RouterSpec& router);

  ExpertLayout layout() const noexcept {
    return packed_ ? ExpertLayout::packed : ExpertLayout::plain;
  }
  std::string_view name() const noexcept;
  int columns() const noexcept { return problem_.rule.top_k; }
  /// Why the host routes; empty when the device does. Steps of such layers cannot be captured.
  std::string_view host_reason() const noexcept { return host_reason_; }
  /// What the host's last routing came to; null when the device routes.
  const HostLoads* host_loads() const noexcept { return loads_ ? &*loads_ : nullptr; }
  /// The call writes next_x too.
  bool writes_next() const noexcept { return packed_; }
  /// As the kernels see it.
  const MoeFfn::Problem& problem() const noexcept { return problem_; }
  /// The kernel for a single token is the default one, not one that SWITCHYARD_KERNEL names.
  bool pinned() const noexcept { return pinned_ != nullptr; }
  /// Grows the scratch to what this layer needs.
  Status reserve(ExpertScratch& scratch, CudaStream& stream) const;
  /// Where a gate that makes the picks itself puts them and their rows (kernels/cuda/gate_entries.h); nowhere when it may not.
  switchyard::cuda::GateScores scores(const ExpertCall& call,
                                      const ExpertScratch& scratch) const noexcept;
  /// What the gate may ask for in front of run().
  switchyard::cuda::FirstWeights first_weights(const BlockWeights& weights, const ExpertCall& call,
                                               const ExpertScratch& scratch) const noexcept;
  /// Errors: Code::device, and only where the host routes: other errors wait for the end of the step.
  Status run(const BlockWeights& weights, const ExpertCall& call, ExpertScratch& scratch,
             CudaStream& device, const Stream& host);

 private:
  const MoeFfn::Kernel* kernel_for(int64_t tokens) const noexcept;
  DeviceRouting routing_of(const ExpertCall& call, const ExpertScratch& scratch) const noexcept;
  MoeFfn::Args args_of(const BlockWeights& weights, const ExpertCall& call,
                       const ExpertScratch& scratch) const noexcept;
  void run_plain(const BlockWeights& weights, const ExpertCall& call, const ExpertScratch& scratch,
                 CudaStreamHandle stream) const;

  RouterSpec router_;
  const moe::Selector* selector_ = nullptr;
  std::string_view host_reason_;
  std::optional<HostLoads> loads_;  // where the host routes
  DType dtype_ = DType::bf16;
  MoeFfn::Problem problem_;
  int compute_capability_ = 0;
  bool packed_ = false;                     // a fast kernel takes every number of tokens
  const MoeFfn::Kernel* few_ = nullptr;     // the one for a single token
  const MoeFfn::Kernel* pinned_ = nullptr;  // by SWITCHYARD_KERNEL; null: chosen step by step
};

}  // namespace switchyard::model::cuda
