// SPDX-License-Identifier: Apache-2.0
// The end of a grouped GEMM, written once for all instruction sets: from the sums of one panel to
// outputs in memory. Included inside a target region after Lanes.
//
//   sums [rows, 32] f32 of gate (and of up)  ->  + bias  ->  silu(gate) * up  ->  y, as f32 rows or
//   bf16 tiles

constexpr int kVectors = kPanel / Lanes::kWidth;  // registers of a row of a panel

// Outputs of one panel for consecutive rows of a slot.
struct PanelOutput {
  const GroupedGemm::Problem& problem;
  const GroupedGemm::Args& args;
  const Task& task;
  int64_t panel;

  // Where the sums of gate and up (null without swiglu) lie, and which rows of the slot they are.
  void finish(const float* gate, const float* up, int64_t row, int64_t num_rows) const {
    if (problem.bias) {
      finish_rows<true>(gate, up, row, num_rows);
    } else {
      finish_rows<false>(gate, up, row, num_rows);
    }
  }

 private:
  struct Row {
    Lanes::F at[kVectors];
  };

  template <bool kBias>
  void finish_rows(const float* gate, const float* up, int64_t row, int64_t num_rows) const {
    const auto columns = static_cast<int>(std::min<int64_t>(kPanel, problem.n - panel * kPanel));
    const Row gate_bias = kBias ? load_bias(0, columns) : Row{};
    const Row up_bias = kBias && up != nullptr ? load_bias(1, columns) : Row{};
    for (int64_t r = 0; r < num_rows; ++r) {
      Row value = load<kBias>(gate + r * kPanel, gate_bias);
      if (up != nullptr) {
        const Row factor = load<kBias>(up + r * kPanel, up_bias);
        for (int v = 0; v < kVectors; ++v) {
          value.at[v] = Lanes::mul(Lanes::silu(value.at[v]), factor.at[v]);
        }
      }
      if (problem.out == RowLayout::rows_f32) {
        store_f32(row + r, columns, value);
      } else {
        store_tile(row + r, value);
      }
    }
  }

  template <bool kBias>
  static Row load(const float* sums, const Row& bias) {
    Row row;
    for (int v = 0; v < kVectors; ++v) {
      row.at[v] = Lanes::load(sums + v * Lanes::kWidth);
      if constexpr (kBias) row.at[v] = Lanes::add(row.at[v], bias.at[v]);
    }
    return row;
  }

  // Zero beyond the panel's columns.
  Row load_bias(int part, int columns) const {
    const int64_t matrix = task.slot * int64_t{matrices(problem)} + part;
    const float* bias = args.bias + matrix * problem.n + panel * kPanel;
    Row row;
    for (int v = 0; v < kVectors; ++v) {
      const int live = std::clamp(columns - v * Lanes::kWidth, 0, Lanes::kWidth);
      row.at[v] = Lanes::load_first(bias + v * Lanes::kWidth, live);
    }
    return row;
  }

  void store_f32(int64_t row, int columns, const Row& value) const {
    float* y = static_cast<float*>(args.y) + (task.first_row + row) * problem.n + panel * kPanel;
    for (int v = 0; v < kVectors; ++v, y += Lanes::kWidth, columns -= Lanes::kWidth) {
      if (columns >= Lanes::kWidth) {
        Lanes::store(y, value.at[v]);
      } else if (columns > 0) {
        Lanes::store_first(y, columns, value.at[v]);
      }
    }
  }

  // Columns beyond n are zero by the padding of the weights and of the bias: tiles want them so.
  void store_tile(int64_t row, const Row& value) const {
    const int64_t block = task.first_block + row / kTileRows, i = row % kTileRows;
    void* y = static_cast<std::byte*>(args.y) + (block * panels(problem) + panel) * kStepBytes +
              i / 16 * kTile + i % 16 * 64;
    for (int v = 0; v < kVectors; ++v) {
      Lanes::store(static_cast<Bf16*>(y) + v * Lanes::kWidth, value.at[v]);
    }
  }
};

// Adds a task's time, and the part of it that epilogues took, to a PhaseSplit, when there is one. In ticks of the time stamp
// counter, because the ratio alone is of interest, and for one epilogue in four: at one token a step, reading clocks around each
// cost more than the profile may.
class SplitClock {
 public:
  explicit SplitClock(PhaseSplit* split) : split_(split), start_(now()) {}
  ~SplitClock() {
    if (split_ == nullptr) return;
    split_->busy_ticks.fetch_add(now() - start_, std::memory_order_relaxed);
    const int64_t all = epilogues_ == 0 ? 0 : epilogue_ticks_ * epilogues_ / timed();
    split_->epilogue_ticks.fetch_add(all, std::memory_order_relaxed);
  }
  SplitClock(const SplitClock&) = delete;
  SplitClock& operator=(const SplitClock&) = delete;

  template <class Epilogue>
  void time(Epilogue&& epilogue) {
    if (split_ == nullptr || epilogues_++ % kSampled != 0) {
      epilogue();
      return;
    }
    const int64_t start = now();
    epilogue();
    epilogue_ticks_ += now() - start;
  }

 private:
  static constexpr int64_t kSampled = 4;
  int64_t timed() const { return (epilogues_ + kSampled - 1) / kSampled; }
  int64_t now() const { return split_ != nullptr ? static_cast<int64_t>(__rdtsc()) : 0; }

  PhaseSplit* split_;
  int64_t start_, epilogue_ticks_ = 0, epilogues_ = 0;
};
