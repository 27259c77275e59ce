// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/grouped_gemm_work.h"

#include <algorithm>

#include "kernels/cpu/grouped_gemm_pack.h"

namespace switchyard::cpu {
namespace {

// Waking a sleeping neighbour costs more than this much work on the own core.
constexpr double kInlineNs = 10'000;
// A task is about this part of a thread's share, within bounds.
constexpr double kTasksEach = 32, kShortestTaskNs = 8'000, kLongestTaskNs = 400'000;

}  // namespace

int64_t Work::memory_bytes(int groups) noexcept {
  return divide_up(groups * static_cast<int64_t>(sizeof(SlotWork)), 64) * 64;
}

Work::Work(const GroupedGemm::Problem& problem, const int32_t* slot_offset, const WorkRates& rates,
           const Limits& limits, int num_threads, std::span<std::byte> memory) noexcept
    : panels_(panels(problem)),
      row_flops_(2 * problem.k * kPanel * matrices(problem)),
      panel_bytes_(matrices(problem) * panel_bytes(problem)),
      rates_(rates) {
  auto* slots = reinterpret_cast<SlotWork*>(memory.data());
  size_t used = 0;
  int64_t first_block = 0;
  double total_ns = 0;
  for (int s = 0; s < problem.groups; ++s) {
    const int32_t rows = slot_offset[s + 1] - slot_offset[s];
    if (rows == 0) continue;
    slots[used++] = {s, rows, slot_offset[s], first_block, 0, 0, 0};
    first_block += tile_blocks(rows);
    total_ns += cost_ns(rows, panels_);
  }
  slots_ = {slots, used};
  std::sort(slots_.begin(), slots_.end(), [](const SlotWork& a, const SlotWork& b) {
    return a.rows != b.rows ? a.rows > b.rows : a.slot < b.slot;
  });
  inline_ = num_threads == 1 || total_ns < kInlineNs;
  // One thread has nobody to share with: the larger its tasks, the longer rows stay in its cache.
  const double task_ns = num_threads == 1 ? kLongestTaskNs
                                          : std::clamp(total_ns / (num_threads * kTasksEach),
                                                       kShortestTaskNs, kLongestTaskNs);
  for (SlotWork& slot : slots_) {
    slot.first_task = num_tasks_;
    set_chunks(slot, task_ns, limits);
    num_tasks_ += divide_up(panels_, slot.panels_each) * divide_up(slot.rows, slot.rows_each);
  }
}

double Work::cost_ns(int64_t rows, int64_t num_panels) const noexcept {
  const auto bytes = static_cast<double>(num_panels * panel_bytes_);
  const auto flops = static_cast<double>(num_panels * rows * row_flops_);
  return std::max(bytes / rates_.bytes_per_ns, flops / rates_.flops_per_ns);
}

// Splits rows only when a single panel with all of them is too much, because every split reads the
// panel again.
void Work::set_chunks(SlotWork& slot, double task_ns, const Limits& limits) const noexcept {
  int64_t rows = std::min<int64_t>(slot.rows, limits.max_rows);
  if (rows > kTileRows && cost_ns(rows, 1) > task_ns) {
    const double share = task_ns / cost_ns(rows, 1);
    const int64_t whole = rows / kTileRows;
    const auto blocks = static_cast<int64_t>(share * static_cast<double>(whole));
    rows = std::max<int64_t>(1, blocks) * kTileRows;
  }
  const auto fitting = static_cast<int64_t>(task_ns / cost_ns(rows, 1));
  slot.rows_each = static_cast<int32_t>(rows);
  slot.panels_each =
      static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, std::min(limits.max_panels, panels_)));
}

Task Work::task(int64_t index) const noexcept {
  const auto after =
      std::upper_bound(slots_.begin(), slots_.end(), index,
                       [](int64_t value, const SlotWork& slot) { return value < slot.first_task; });
  const SlotWork& slot = *(after - 1);
  const int64_t row_groups = divide_up(slot.rows, slot.rows_each);
  const int64_t within = index - slot.first_task;
  const int64_t panel = within / row_groups * slot.panels_each;
  const int64_t row = within % row_groups * slot.rows_each;
  return {.slot = slot.slot,
          .panel = panel,
          .panel_end = std::min(panels_, panel + slot.panels_each),
          .row = row,
          .row_end = std::min<int64_t>(slot.rows, row + slot.rows_each),
          .first_row = slot.first_row,
          .first_block = slot.first_block};
}

void Work::for_each(Pool& pool, FunctionRef<void(const Task&, int thread)> run) const {
  if (inline_) {
    for (int64_t i = 0; i < num_tasks_; ++i) run(task(i), 0);
    return;
  }
  pool.for_each(num_tasks_, [&](int64_t i, int thread) { run(task(i), thread); });
}

}  // namespace switchyard::cpu
