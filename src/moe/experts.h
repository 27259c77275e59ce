// SPDX-License-Identifier: Apache-2.0
// Experts: the gated feed-forward over groups of rows, down(silu(gate x) * (up x)), and the same
// for the always-on shared experts and for dense layers (one group). Source: Shazeer 2020, arXiv
// 2002.05202 (SwiGLU).
#pragma once
#include <cstdint>

#include "base/result.h"
#include "kernels/linear.h"
#include "moe/plan.h"
#include "moe/step.h"

namespace switchyard::moe {

struct ExpertsSpec {
  int groups = 1;         ///< S
  int64_t width = 0;      ///< D
  int64_t ffn_width = 0;  ///< F
  int64_t max_rows = 0;
  DType weight = DType::bf16;
};

class Experts {
 public:
  static Result<Experts> create(const ExpertsSpec& spec);

  Linear& gate_up() noexcept { return gate_up_; }  ///< pack(slot, gate [F, D], up [F, D])
  Linear& down() noexcept { return down_; }        ///< pack(slot, down [D, F])
  const Linear& gate_up() const noexcept { return gate_up_; }
  RowLayout in() const noexcept { return gate_up_.in(); }
  int64_t weight_bytes() const noexcept { return gate_up_.weight_bytes() + down_.weight_bytes(); }

  /// Rows [R, D] by slot in the layout of in(); the result [R, D] f32 lives in the step's arena.
  const float* forward(const void* rows, const DispatchPlan& plan, const Step& step) const;
  /// One group and x [T, D] f32, without a plan: shared experts and dense layers. Timed as `zone`.
  const float* forward_dense(const float* x, int64_t tokens, Zone zone, const Step& step) const;

  int64_t room(int num_threads) const noexcept;
  int64_t dense_room(int num_threads) const noexcept;

 private:
  /// The activation's share of the first product's time. Clocks around its parts cost a short step more than a profile
  /// may, so it is measured in one call of eight, and whenever the number of rows is another one.
  struct SampledShare {
    int64_t rows = -1;
    int calls = 0;
    double value = 0;
    bool due(int64_t rows_now);
  };

  int64_t hidden_bytes(int64_t rows) const noexcept;
  void run_gate_up_timed(const void* rows, const DispatchPlan& plan, std::byte* hidden,
                         const Step& step) const;

  ExpertsSpec spec_;
  Linear gate_up_, down_;
  mutable SampledShare share_;  // of the thread that drives the steps
};

}  // namespace switchyard::moe
