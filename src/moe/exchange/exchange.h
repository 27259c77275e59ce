// SPDX-License-Identifier: Apache-2.0
// Exchange: moves rows to the slots of their experts and back. Dispatch is split in two, so that
// shared experts can work while rows travel.
#pragma once
#include <cstdint>

#include "moe/plan.h"
#include "moe/step.h"

namespace switchyard::moe {

/// What combine() adds beside the experts' rows.
struct SharedOutput {
  const float* value = nullptr;   ///< [T, D] f32, or null
  const float* weight = nullptr;  ///< [T] f32, or null: 1
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// x [T, D] f32: rows leave.
  virtual void begin_dispatch(const float* x, const DispatchPlan& plan, const Step& step) = 0;
  /// Rows by slot, in the layout that the experts read; lives in the step's arena.
  virtual const void* finish_dispatch(const DispatchPlan& plan, const Step& step) = 0;
  /// y[t] += scale * (sum_k weight[t, k] * rows[pick_row[t, k]] + shared).
  virtual void combine(const float* rows, const Routing& routing, const DispatchPlan& plan,
                       const SharedOutput& shared, float scale, float* y, const Step& step) = 0;
  virtual int64_t room(const Limits& limits) const noexcept = 0;
};

}  // namespace switchyard::moe
