// SPDX-License-Identifier: Apache-2.0
// The naive loop: one expert after another, each with its own gather, three plain GEMMs and an
// activation pass. A baseline that grouped execution is compared with; nothing serves with it.
//
//   for every expert e with n > 0 rows:  rows = x[tokens of e]          [n, D]
//     g = rows gate[e]^T, u = rows up[e]^T   [n, F];  h = silu(g) * u;  out = h down[e]^T   [n, D]
// So do eager PyTorch loops: the fallback of transformers, `for expert in experts: y.index_add_(0,
// tokens, expert(x[tokens]) * weight)`, and most first implementations. What it lacks is one call
// for all experts, tasks that are balanced over experts, and the activation inside the first
// product. What it has is ours: the same kernels for each GEMM, all threads inside each, packed
// weights, untouched experts skipped, and one fused combine instead of an index_add an expert.
// Cost: 5 calls for each touched expert, and 2 n F f32 that are written and read again.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "kernels/linear.h"
#include "kernels/ops/permute.h"
#include "moe/experts.h"
#include "moe/plan.h"
#include "moe/step.h"

namespace switchyard::moe {

class NaiveExperts {
 public:
  /// `max_expert_rows`: most rows of one expert (T, as a token picks an expert once); the other
  /// sizes as for Experts.
  static Result<NaiveExperts> create(const ExpertsSpec& spec, int64_t max_expert_rows);

  /// gate and up [F, D], down [D, F]. Different slots may be packed by different threads.
  void pack(int slot, const TensorView& gate, const TensorView& up, const TensorView& down);

  /// The contract of Experts::forward(), but for x: [T, D] f32, as rows are gathered expert by
  /// expert. The result [R, D] f32, by row of the plan, lives in the step's arena.
  const float* forward(const float* x, const DispatchPlan& plan, const Step& step) const;

  const Linear& gate() const noexcept { return slots_.front().gate; }
  int64_t weight_bytes() const noexcept;
  int64_t room(int num_threads) const noexcept;

 private:
  struct Slot {
    Linear gate, up, down;  // of one group each
  };

  void run_slot(const Slot& slot, const float* x, const int32_t* tokens, int64_t rows, float* out,
                const Step& step) const;

  ExpertsSpec spec_;
  int64_t max_expert_rows_ = 0;
  Bound<Gather> gather_;
  std::vector<Slot> slots_;
};

/// g[i] = silu(g[i]) * u[i] for i in [0, count), over the pool.
void silu_multiply(float* g, const float* u, int64_t count, Pool& pool);

}  // namespace switchyard::moe
