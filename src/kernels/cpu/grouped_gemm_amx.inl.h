// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM on AMX tiles: x in tiles_bf16, weights in panel32_bf16, y as f32 rows or as the
// tiles of the next product. Included inside a target region after Lanes.
//
// One row takes the same path as many: streaming the weights costs more than the arithmetic even
// so, hence a row's bits depend on nothing but the row and its weights.
// Source: Intel 64 and IA-32 Optimization Reference Manual, chapter on AMX (blocking, packing of
// the second operand).

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

// A group of one to three tiles of 16 rows times one panel of 32 outputs, over some steps of 32 inputs.
//
// Two tiles of rows meet two of weights with four loads for four products. Three tiles reuse what a step has loaded
// (six products; two tiles of rows are loaded twice, the second time from L1), which takes fewer bytes from L2.
struct TileProduct {
  const std::byte* rows[3];  // the first step of each tile of rows; a step is kStepBytes further
  const std::byte* weight;   // [steps][2 tiles]
  int64_t steps;
  bool resume;   // go on from the sums in `to`
  float* to[3];  // [16, 32] each

  // Fetches kLines cache lines into L2 in every step, from `ahead` on.
  template <int kRowTiles, int kLines>
  void run(const std::byte* ahead) const {
    constexpr int kStride = kPanel * 4;
    start<kRowTiles>();
    for (int64_t at = 0; at < steps * kStepBytes; at += kStepBytes) {
      if constexpr (kRowTiles == 3) {
        _tile_loadd(7, weight + at, 64);
        _tile_loadd(6, rows[0] + at, 64);
        _tile_dpbf16ps(0, 6, 7);
        _tile_loadd(6, rows[1] + at, 64);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(6, rows[2] + at, 64);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(7, weight + at + kTile, 64);
        _tile_dpbf16ps(5, 6, 7);
        _tile_loadd(6, rows[1] + at, 64);
        _tile_dpbf16ps(3, 6, 7);
        _tile_loadd(6, rows[0] + at, 64);
        _tile_dpbf16ps(1, 6, 7);
      } else {
        _tile_loadd(6, weight + at, 64);
        _tile_loadd(4, rows[0] + at, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, weight + at + kTile, 64);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (kRowTiles == 2) {
          _tile_loadd(5, rows[1] + at, 64);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
      for (int line = 0; line < kLines; ++line) _mm_prefetch(ahead + line * 64, _MM_HINT_T1);
      ahead += kLines * 64;
    }
    _tile_stored(0, to[0], kStride);
    _tile_stored(1, to[0] + 16, kStride);
    if constexpr (kRowTiles >= 2) {
      _tile_stored(2, to[1], kStride);
      _tile_stored(3, to[1] + 16, kStride);
    }
    if constexpr (kRowTiles == 3) {
      _tile_stored(4, to[2], kStride);
      _tile_stored(5, to[2] + 16, kStride);
    }
  }

 private:
  template <int kRowTiles>
  void start() const {
    constexpr int kStride = kPanel * 4;
    asm volatile("" : : : "memory");  // GCC's tile loads do not say that they read memory
    if (!resume) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      _tile_zero(4);
      _tile_zero(5);
      return;
    }
    _tile_loadd(0, to[0], kStride);
    _tile_loadd(1, to[0] + 16, kStride);
    if constexpr (kRowTiles >= 2) {
      _tile_loadd(2, to[1], kStride);
      _tile_loadd(3, to[1] + 16, kStride);
    }
    if constexpr (kRowTiles == 3) {
      _tile_loadd(4, to[2], kStride);
      _tile_loadd(5, to[2] + 16, kStride);
    }
  }
};

// Weights come from memory, and the core's own prefetcher stops at the end of every page: asking for each line a bit
// ahead lifts one core from 13.4 to 15.9 GB/s at one row and from 12.0 to 15.1 at 32 (any further ahead is worse).
constexpr int64_t kAheadBytes = 3072;
constexpr int kStreamLines = kStepBytes / 64;
// While later groups of rows work on weights that are now in L2, memory would idle: they go on with the stream, at
// about the pace of memory. Faster is worse, since lines beyond what the core can track are dropped.
constexpr int kNextLines = 6;

// How a task cuts its work.
struct TileBlocking {
  static constexpr int64_t kRowBytes = int64_t{1} << 20;  // of rows that stay in L2: half of 2 MiB

  int64_t tiles;  // of 16 rows
  int64_t steps;  // of the whole of k
  int64_t slice;  // steps done for some panels before the next slice, so that their rows stay in L2
  int64_t group_panels;  // those panels
  int64_t groups;        // of at most three tiles, of equal size, give or take one
  int64_t turn;          // steps that a group does before the next group has its turn

  TileBlocking(const GroupedGemm::Problem& problem, int64_t rows)
      : tiles(divide_up(rows, 16)),
        steps(divide_up(problem.k, kStep)),
        slice(std::min(steps, kRowBytes / (tile_blocks(rows) * kStepBytes))),
        group_panels(slice == steps ? 1 : kMaxTileSums / (tile_blocks(rows) * matrices(problem))) {
    // With a few groups memory is still the limit: short turns keep its stream going, at the price of storing and
    // loading the sums, for which two tiles are cheaper than three (64 rows: 12.0 -> 13.4 GB/s, 128: 8.2 -> 9.2, one
    // core). With one group there is nothing to alternate with; with many the arithmetic is the limit.
    const bool short_turns = tiles > 3 && tiles <= 8;
    groups = divide_up(tiles, short_turns ? 2 : 3);
    turn = short_turns ? 4 : steps;
  }
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
        blocking_(problem, task.row_end - task.row) {}

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

  // All rows times a slice of gate, then of up; sums [parts][blocks][32, 32].
  void multiply_panel(int64_t panel, int64_t step, int64_t steps, float* sums) const {
    const std::byte* weight =
        args_.weight + task_.slot * slot_bytes(problem_) + panel * parts_ * panel_bytes(problem_);
    for (int64_t part = 0; part < parts_; ++part) {
      for (int64_t at = step; at < step + steps; at += blocking_.turn) {
        const int64_t turn = std::min(blocking_.turn, step + steps - at);
        multiply_turn(weight, at, turn, sums);
      }
      weight += panel_bytes(problem_);
      sums += blocks_ * kBlockSums;
    }
  }

  // All groups of rows, one after the other, for some steps of one matrix of a panel.
  void multiply_turn(const std::byte* panel, int64_t step, int64_t steps, float* sums) const {
    const std::byte* weight = panel + step * kStepBytes;
    const std::byte* stream = weight + kAheadBytes;
    for (int64_t g = 0; g < blocking_.groups; ++g) {
      const int64_t begin = blocking_.tiles * g / blocking_.groups;
      const int64_t end = blocking_.tiles * (g + 1) / blocking_.groups;
      TileProduct product{{}, weight, steps, step > 0, {}};
      for (int64_t t = begin; t < end; ++t) {
        product.rows[t - begin] = row_tile(t) + step * kStepBytes;
        product.to[t - begin] = sums + t * 16 * kPanel;
      }
      multiply(product, end - begin, g == 0, stream);
      stream += steps * (g == 0 ? kStreamLines : kNextLines) * 64;
    }
  }

  static void multiply(const TileProduct& product, int64_t row_tiles, bool first,
                       const std::byte* ahead) {
    if (row_tiles == 3) {
      first ? product.run<3, kStreamLines>(ahead) : product.run<3, kNextLines>(ahead);
    } else if (row_tiles == 2) {
      first ? product.run<2, kStreamLines>(ahead) : product.run<2, kNextLines>(ahead);
    } else {
      first ? product.run<1, kStreamLines>(ahead) : product.run<1, kNextLines>(ahead);
    }
  }

  // Tile t of 16 rows of the task, at the first step.
  const std::byte* row_tile(int64_t t) const {
    const auto* x = static_cast<const std::byte*>(args_.x);
    return x + (first_block_ + t / 2) * blocking_.steps * kStepBytes + t % 2 * kTile;
  }

  void finish_panel(int64_t panel, const float* sums) const {
    const PanelOutput output{problem_, args_, task_, panel};
    const float* up = parts_ == 2 ? sums + blocks_ * kBlockSums : nullptr;
    output.finish(sums, up, task_.row, task_.row_end - task_.row);
  }

  const GroupedGemm::Problem& problem_;
  const GroupedGemm::Args& args_;
  const Task& task_;
  float* sums_;
  int64_t first_block_, blocks_, parts_;
  TileBlocking blocking_;
};
