// SPDX-License-Identifier: Apache-2.0
// The routing of one layer in one run of bench moe: drawn, limited to a capacity, and cut down to the
// experts that live here. Made before the clock starts.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cli/bench_moe_shape.h"
#include "device/device.h"
#include "kernels/ops/route.h"
#include "moe/workload/traffic.h"

namespace switchyard::cli {

class MoeDraw {
 public:
  /// `factor` is the capacity factor, 0 dropless. C = ceil(factor K T / E), of all ranks' tokens.
  static Result<MoeDraw> make(const MoeShape& shape, const moe::Traffic& traffic, int layer,
                              int64_t tokens, uint32_t step, double factor, const Stream& stream);

  /// Borrowed views of this draw, which must stay where it is. [T, K], loads of the slots here.
  Routing routing() const;
  /// Rows of an expert in padded execution: C, or the largest load here when dropless.
  int64_t capacity() const noexcept { return capacity_; }

  int touched() const noexcept;       ///< slots with at least one row
  double imbalance() const noexcept;  ///< hottest over mean of the slots here, before any drop
  int64_t picks() const noexcept;     ///< that fall on slots here, before any drop
  int64_t kept_picks() const noexcept;

 private:
  int64_t tokens_ = 0, capacity_ = 0;
  int top_k_ = 0;
  moe::Picks picks_;
  std::vector<int32_t> load_, demand_;  // [S]
};

/// Means over draws.
struct MoeLoad {
  double touched = 0, imbalance = 0, picks = 0, kept_picks = 0, mean_capacity = 0;
  int64_t max_capacity = 0;  ///< the largest
};
MoeLoad mean_load(const std::vector<MoeDraw>& draws);

}  // namespace switchyard::cli
