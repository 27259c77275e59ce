// SPDX-License-Identifier: Apache-2.0
// Who does what in one grouped GEMM: tasks of (slot, panels, rows), the slots with most rows first,
// so that the last tasks are small and the threads end together. Plain code, outside the target
// regions.
//
// The cost of a task is the larger of the time to stream its panels from memory and the time of its
// arithmetic. Tasks aim at a time that is long beside an atomic increment and short beside the
// whole; a call that is too small to wake other threads stays on the calling one.
#pragma once
#include <algorithm>  // for the texts included in target regions
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/threads.h"
#include "kernels/ops/grouped_gemm.h"

namespace switchyard::cpu {

/// Scratch of the AMX kernel: what one thread keeps of sums that wait for the rest of k.
inline constexpr int64_t kBlockSums = int64_t{kTileRows} * 32;  ///< f32 of 32 rows x 32 outputs
inline constexpr int64_t kMaxTileSums = 64;   ///< blocks of sums of a thread: 256 KiB
inline constexpr int64_t kMaxTileBlocks = 8;  ///< blocks of 32 rows in one task

/// What a kernel can do on one core: coarse figures that only steer the size of tasks.
struct WorkRates {
  double bytes_per_ns = 10;  ///< of weights from memory
  double flops_per_ns = 100;
};

/// A piece of work: panels [panel, panel_end) times rows [row, row_end) of a slot.
struct Task {
  int slot = 0;
  int64_t panel = 0, panel_end = 0;
  int64_t row = 0, row_end = 0;  ///< within the slot; row is a multiple of 32
  int64_t first_row = 0;         ///< of the slot, over all slots
  int64_t first_block = 0;       ///< the same in blocks of tiles_bf16
};

/// The tasks of one call, without a list of them: each is found from its number.
class Work {
 public:
  /// Bytes of memory that the constructor needs.
  static int64_t memory_bytes(int groups) noexcept;

  /// `max_panels` and `max_rows` (a multiple of 32) limit a task to what a kernel's scratch can
  /// hold.
  struct Limits {
    int64_t max_panels = 0, max_rows = 0;
  };
  Work(const GroupedGemm::Problem& problem, const int32_t* slot_offset, const WorkRates& rates,
       const Limits& limits, int num_threads, std::span<std::byte> memory) noexcept;

  /// Runs every task once, in parallel when it is worth it.
  void for_each(Pool& pool, FunctionRef<void(const Task&, int thread)> run) const;

  int64_t num_tasks() const noexcept { return num_tasks_; }
  Task task(int64_t index) const noexcept;
  bool runs_inline() const noexcept { return inline_; }

 private:
  // A slot that has rows. Its tasks: for each chunk of panels, each group of rows.
  struct SlotWork {
    int32_t slot, rows;
    int64_t first_row, first_block;
    int64_t first_task;
    int32_t panels_each, rows_each;  // of one task
  };
  void set_chunks(SlotWork& slot, double task_ns, const Limits& limits) const noexcept;
  double cost_ns(int64_t rows, int64_t num_panels) const noexcept;

  int64_t panels_ = 0, row_flops_ = 0, panel_bytes_ = 0;
  WorkRates rates_;
  std::span<SlotWork> slots_;
  int64_t num_tasks_ = 0;
  bool inline_ = false;
};

}  // namespace switchyard::cpu
