// SPDX-License-Identifier: Apache-2.0
// Linear: a projection with its weights packed for the kernel that was chosen for it. One group is
// a dense layer of the model; many groups are the experts of a MoE layer.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/arena.h"
#include "kernels/op.h"
#include "kernels/ops/grouped_gemm.h"
#include "kernels/ops/permute.h"
#include "tensor/storage.h"

namespace switchyard {

/// Chooses a kernel for `problem`, whatever its `in` says: tiles where a fast kernel reads tiles,
/// else f32 rows. The bound problem tells which. `out` is kept, except that out_follows_in makes it
/// equal to the chosen `in` (for the first of two chained products).
enum class OutLayout : uint8_t { rows, follows_in };
Result<Bound<GroupedGemm>> select_grouped_gemm(GroupedGemm::Problem problem, OutLayout out);

class Linear {
 public:
  /// Chooses the kernel and allocates room for the packed weights.
  static Result<Linear> create(const GroupedGemm::Problem& problem,
                               OutLayout out = OutLayout::rows);

  /// Packs one slot; views are [n, k]. Different slots may be packed by different threads.
  void pack(int slot, const TensorView& gate, const TensorView* up = nullptr);
  /// [S, n] f32, or [S, 2, n] with swiglu; only when the problem has a bias.
  void set_bias(std::vector<float> bias);

  /// y = x W^T (+ bias) for rows already in the kernel's layout.
  void run(const void* x, const int32_t* slot_offset, void* y, Arena& arena, const Stream& stream,
           PhaseSplit* split = nullptr) const;
  /// The same for one group and x [T, k] f32: packs the rows first where the kernel wants tiles.
  void run_dense(const float* x, int64_t tokens, void* y, Arena& arena, const Stream& stream) const;

  const Bound<GroupedGemm>& gemm() const noexcept { return gemm_; }
  RowLayout in() const noexcept { return gemm_.problem().in; }
  int64_t weight_bytes() const noexcept { return weight_.size(); }
  /// Arena room of run(), and of run_dense() for max_rows tokens.
  int64_t run_room(int num_threads) const noexcept;
  int64_t run_dense_room(int num_threads) const noexcept;

 private:
  Bound<GroupedGemm> gemm_;
  Bound<Gather> gather_;  // bound only for tiles
  Storage weight_;
  int64_t slot_bytes_ = 0;
  std::vector<float> bias_;
};

}  // namespace switchyard
