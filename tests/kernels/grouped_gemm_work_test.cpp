// SPDX-License-Identifier: Apache-2.0
// The work split: every (slot, row, panel) belongs to exactly one task, whatever the rows and the
// threads.
#include "kernels/cpu/grouped_gemm_work.h"

#include <map>

#include <gtest/gtest.h>

#include "cases/grouped_gemm.h"
#include "kernels/cpu/grouped_gemm_pack.h"
#include "tensor/storage.h"

namespace switchyard::cpu {
namespace {

struct Split {
  std::vector<int32_t> slot_offset{0};
  GroupedGemm::Problem problem;
  Storage memory;
  Work work;

  Split(int64_t n, int64_t k, const std::vector<int>& rows, int num_threads,
        const Work::Limits& limits = {.max_panels = 64, .max_rows = 256})
      : problem{.groups = static_cast<int>(rows.size()), .n = n, .k = k},
        memory(*Storage::allocate(Work::memory_bytes(problem.groups))),
        work(problem, offsets(rows), {}, limits, num_threads,
             {memory.data(), static_cast<size_t>(memory.size())}) {}

  const int32_t* offsets(const std::vector<int>& rows) {
    for (const int r : rows) slot_offset.push_back(slot_offset.back() + r);
    return slot_offset.data();
  }
};

void expect_complete(const Split& split, const Work::Limits& limits) {
  std::map<std::pair<int, int64_t>, int64_t> seen;  // (slot, panel): rows covered
  const auto& offset = split.slot_offset;
  for (int64_t i = 0; i < split.work.num_tasks(); ++i) {
    const Task t = split.work.task(i);
    ASSERT_LT(t.panel, t.panel_end);
    ASSERT_LT(t.row, t.row_end);
    EXPECT_EQ(t.row % kTileRows, 0);
    EXPECT_LE(t.panel_end - t.panel, limits.max_panels);
    EXPECT_LE(t.row_end - t.row, limits.max_rows);
    EXPECT_EQ(t.first_row, offset[t.slot]);
    int64_t blocks = 0;
    for (int s = 0; s < t.slot; ++s) blocks += tile_blocks(offset[s + 1] - offset[s]);
    EXPECT_EQ(t.first_block, blocks);
    for (int64_t panel = t.panel; panel < t.panel_end; ++panel) {
      EXPECT_EQ((seen[{t.slot, panel}]), t.row) << "rows of a panel come in order";
      seen[{t.slot, panel}] = t.row_end;
    }
  }
  size_t expected = 0;
  for (int s = 0; s < split.problem.groups; ++s) {
    const int64_t rows = offset[s + 1] - offset[s];
    if (rows == 0) continue;
    for (int64_t panel = 0; panel < panels(split.problem); ++panel, ++expected) {
      EXPECT_EQ((seen[{s, panel}]), rows) << "slot " << s << " panel " << panel;
    }
  }
  EXPECT_EQ(seen.size(), expected);
}

TEST(GroupedGemmWork, EveryRowAndPanelBelongsToOneTask) {
  for (const cases::GroupedGemmCase& shape : cases::grouped_gemm_cases()) {
    for (const int threads : {1, 2, 64}) {
      for (const Work::Limits limits : {Work::Limits{64, 256}, Work::Limits{1, 32}}) {
        for (const int64_t grow : {1, 40}) {  // larger matrices make smaller pieces
          SCOPED_TRACE(testing::Message() << shape.name << ", " << threads << " threads");
          expect_complete(Split(shape.n * grow, shape.k * grow, shape.rows, threads, limits),
                          limits);
        }
      }
    }
  }
}

TEST(GroupedGemmWork, SlotsWithMostRowsComeFirst) {
  const Split split(4096, 4096, {3, 0, 90, 7, 90}, 2);
  int64_t last = 1000;
  for (int64_t i = 0; i < split.work.num_tasks(); ++i) {
    const int slot = split.work.task(i).slot;
    const int64_t rows = split.slot_offset[slot + 1] - split.slot_offset[slot];
    EXPECT_LE(rows, last);
    last = rows;
  }
}

TEST(GroupedGemmWork, SmallCallsStayOnTheirThread) {
  EXPECT_TRUE(Split(64, 128, {1, 1}, 2).work.runs_inline());
  EXPECT_FALSE(Split(2048, 1024, {1, 1}, 2).work.runs_inline());
  EXPECT_TRUE(Split(2048, 1024, {1, 1}, 1).work.runs_inline());
}

TEST(GroupedGemmWork, ManyRowsOfOnePanelAreSharedOut) {
  const Split split(32, 4096, {4096}, 8);
  EXPECT_GE(split.work.num_tasks(), 16);
}

}  // namespace
}  // namespace switchyard::cpu
