// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM on AMX tiles: x in tiles_bf16, weights in panel32_bf16, y as f32 rows or as the
// tiles of the next product. Included inside a target region after Lanes.
//
// A block of 32 rows times a panel of 32 outputs is four accumulators fed by two tiles of rows and
// two of weights in each step of 32 inputs (one tile of rows for 16 rows or fewer). One row takes
// the same path: streaming the weights costs more than the arithmetic even so, hence a row's bits
// depend on nothing but the row and its weights. Source: Intel 64 and IA-32 Optimization Reference
// Manual, chapter on AMX (blocking, packing of the second operand).

#include "kernels/cpu/grouped_gemm_epilogue.inl.h"

// The layout that LDTILECFG reads.
struct TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Eight full tiles for as long as the object lives. Full tiles with padded rows cost less than
// shapes of their own for each number of rows.
class TileScope {
 public:
  TileScope() {
    // NOTE: GCC 12 declares that LDTILECFG reads 8 bytes, and drops the other stores of a local
    // object; the product then traps. A constant in read-only memory behind a barrier keeps all 64
    // bytes.
    alignas(64) static constexpr TileShapes kShapes;
    asm volatile("" : : "r"(&kShapes) : "memory");
    _tile_loadconfig(&kShapes);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Steps of one block of rows times one panel, over `steps` steps of 32 inputs.
struct TileProduct {
  const std::byte* rows;    // [steps][2 tiles]
  const std::byte* weight;  // [steps][2 tiles]
  int64_t steps;
  bool resume;  // go on from the sums in `to`
  float* to;    // [32, 32]

  // Rows 0-15 in tiles 0 and 1, rows 16-31 in tiles 2 and 3.
  void run_two() const {
    constexpr int kStride = kPanel * 4;
    start(true);
    const std::byte *a = rows, *b = weight;
    for (int64_t i = 0; i < steps; ++i, a += kStepBytes, b += kStepBytes) {
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kTile, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + kTile, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, kStride);
    _tile_stored(1, to + 16, kStride);
    _tile_stored(2, to + 16 * kPanel, kStride);
    _tile_stored(3, to + 16 * kPanel + 16, kStride);
  }
  void run_one() const {
    constexpr int kStride = kPanel * 4;
    start(false);
    const std::byte *a = rows, *b = weight;
    for (int64_t i = 0; i < steps; ++i, a += kStepBytes, b += kStepBytes) {
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kTile, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, to, kStride);
    _tile_stored(1, to + 16, kStride);
  }

 private:
  void start(bool two) const {
    constexpr int kStride = kPanel * 4;
    asm volatile("" : : : "memory");  // GCC's tile loads do not say that they read memory
    if (!resume) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      return;
    }
    _tile_loadd(0, to, kStride);
    _tile_loadd(1, to + 16, kStride);
    if (!two) return;
    _tile_loadd(2, to + 16 * kPanel, kStride);
    _tile_loadd(3, to + 16 * kPanel + 16, kStride);
  }
};

// How a task cuts its work so that rows stay in the L2 cache while panels stream past them.
struct TileBlocking {
  static constexpr int64_t kRowBytes = int64_t{1} << 20;  // half of a 2 MiB L2

  int64_t steps;         // of the whole of k
  int64_t slice;         // steps done for every panel of a group before the next slice
  int64_t group_panels;  // panels of a group

  TileBlocking(const GroupedGemm::Problem& problem, int64_t blocks)
      : steps(divide_up(problem.k, kStep)),
        slice(std::min(steps, kRowBytes / (blocks * kStepBytes))),
        group_panels(slice == steps ? 1 : kMaxTileSums / (blocks * matrices(problem))) {}
};

// One task: its rows times its panels.
class TileTask {
 public:
  TileTask(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args, const Task& task,
           float* sums)
      : problem_(problem),
        args_(args),
        task_(task),
        sums_(sums),
        first_block_(task.first_block + task.row / kTileRows),
        blocks_(tile_blocks(task.row_end - task.row)),
        parts_(matrices(problem)),
        blocking_(problem, blocks_) {}

  void run() const {
    SplitClock clock(args_.split);
    for (int64_t panel = task_.panel; panel < task_.panel_end; panel += blocking_.group_panels) {
      run_group(panel, std::min(task_.panel_end, panel + blocking_.group_panels), clock);
    }
  }

 private:
  void run_group(int64_t begin, int64_t end, SplitClock& clock) const {
    for (int64_t step = 0; step < blocking_.steps; step += blocking_.slice) {
      const int64_t steps = std::min(blocking_.slice, blocking_.steps - step);
      for (int64_t panel = begin; panel < end; ++panel) {
        float* sums = sums_ + (panel - begin) * parts_ * blocks_ * kBlockSums;
        multiply_panel(panel, step, steps, sums);
        if (step + steps < blocking_.steps) continue;
        clock.time([&] { finish_panel(panel, sums); });
      }
    }
  }

  // All blocks of rows times a slice of gate, then of up; sums [parts][blocks][32, 32].
  void multiply_panel(int64_t panel, int64_t step, int64_t steps, float* sums) const {
    const auto* x = static_cast<const std::byte*>(args_.x);
    const std::byte* weight = args_.weight + task_.slot * slot_bytes(problem_) +
                              panel * parts_ * panel_bytes(problem_) + step * kStepBytes;
    for (int64_t part = 0; part < parts_; ++part) {
      for (int64_t block = 0; block < blocks_; ++block) {
        const int64_t at = (first_block_ + block) * blocking_.steps + step;
        const TileProduct product{.rows = x + at * kStepBytes,
                                  .weight = weight + part * panel_bytes(problem_),
                                  .steps = steps,
                                  .resume = step > 0,
                                  .to = sums + (part * blocks_ + block) * kBlockSums};
        if (rows_of(block) > kTileRows / 2) {
          product.run_two();
        } else {
          product.run_one();
        }
      }
    }
  }

  void finish_panel(int64_t panel, const float* sums) const {
    const PanelOutput output{problem_, args_, task_, panel};
    const float* up = parts_ == 2 ? sums + blocks_ * kBlockSums : nullptr;
    output.finish(sums, up, task_.row, task_.row_end - task_.row);
  }

  int64_t rows_of(int64_t block) const {
    return std::min<int64_t>(kTileRows, task_.row_end - task_.row - block * kTileRows);
  }

  const GroupedGemm::Problem& problem_;
  const GroupedGemm::Args& args_;
  const Task& task_;
  float* sums_;
  int64_t first_block_, blocks_, parts_;
  TileBlocking blocking_;
};
