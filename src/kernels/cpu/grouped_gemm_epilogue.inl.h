// SPDX-License-Identifier: Apache-2.0
// The end of a grouped GEMM, written once for all instruction sets: from the sums of one panel to
// outputs in memory. Included inside a target region after Lanes.
//
//   sums [rows, 32] f32 of gate (and of up)  ->  + bias  ->  silu(gate) * up  ->  y, as f32 rows or
//   bf16 tiles

// Outputs of one panel for consecutive rows of a slot.
struct PanelOutput {
  const GroupedGemm::Problem& problem;
  const GroupedGemm::Args& args;
  const Task& task;
  int64_t panel;

  // Where the sums of gate and up (null without swiglu) lie, and which rows of the slot they are.
  void finish(const float* gate, const float* up, int64_t row, int64_t num_rows) const {
    const auto columns = static_cast<int>(std::min<int64_t>(kPanel, problem.n - panel * kPanel));
    for (int at = 0; at < kPanel; at += Lanes::kWidth) {
      const int live = std::clamp(columns - at, 0, Lanes::kWidth);
      const Lanes::F gate_bias = bias(0, at, live);
      const Lanes::F up_bias = bias(1, at, live);
      for (int64_t r = 0; r < num_rows; ++r) {
        Lanes::F value = Lanes::add(Lanes::load(gate + r * kPanel + at), gate_bias);
        if (up != nullptr) {
          const Lanes::F factor = Lanes::add(Lanes::load(up + r * kPanel + at), up_bias);
          value = Lanes::mul(Lanes::silu(value), factor);
        }
        store(row + r, at, live, value);
      }
    }
  }

 private:
  Lanes::F bias(int part, int at, int live) const {
    if (!problem.bias || part >= matrices(problem)) return Lanes::zero();
    const int64_t matrix = task.slot * int64_t{matrices(problem)} + part;
    return Lanes::load_first(args.bias + matrix * problem.n + panel * kPanel + at, live);
  }

  // Columns beyond n are zero by the padding of the weights and of the bias: tiles want them so.
  void store(int64_t row, int at, int live, Lanes::F value) const {
    if (problem.out == RowLayout::rows_f32) {
      float* y = static_cast<float*>(args.y) + (task.first_row + row) * problem.n + panel * kPanel;
      Lanes::store_first(y + at, live, value);
      return;
    }
    const int64_t block = task.first_block + row / kTileRows, i = row % kTileRows;
    auto* y = static_cast<std::byte*>(args.y) + (block * panels(problem) + panel) * kStepBytes +
              i / 16 * kTile + i % 16 * 64 + at * 2;
    Lanes::store(static_cast<Bf16*>(static_cast<void*>(y)), value);
  }
};

// Adds a task's time, and the part of it that epilogues took, to a PhaseSplit, when there is one.
class SplitClock {
 public:
  explicit SplitClock(PhaseSplit* split) : split_(split), start_(now()) {}
  ~SplitClock() {
    if (split_ == nullptr) return;
    split_->busy_ns.fetch_add(now() - start_, std::memory_order_relaxed);
    split_->epilogue_ns.fetch_add(epilogue_ns_, std::memory_order_relaxed);
  }
  SplitClock(const SplitClock&) = delete;
  SplitClock& operator=(const SplitClock&) = delete;

  template <class Epilogue>
  void time(Epilogue&& epilogue) {
    const int64_t start = now();
    epilogue();
    epilogue_ns_ += now() - start;
  }

 private:
  int64_t now() const { return split_ != nullptr ? now_ns() : 0; }

  PhaseSplit* split_;
  int64_t start_, epilogue_ns_ = 0;
};
