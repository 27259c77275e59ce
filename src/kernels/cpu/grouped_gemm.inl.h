// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM by fused multiply-add, written once for AVX2 and AVX-512; x [R, k] f32, weights in
// panels of 32 outputs (grouped_gemm_pack.h) of f32 or bf16, y [R, n] f32. Included inside a target
// region after Lanes.
//
// A block of rows times a panel keeps all its sums in registers over the whole of k: 12 rows x 32
// outputs with 32 registers, 3 x 32 or 6 x 16 with 16. Every sum is one chain of multiply-adds in
// ascending k, whatever the number of rows, so a row's bits depend on nothing but the row and its
// weights. bf16 weights are widened by a shift and a mask: the bf16 dot instruction runs at half
// the rate of the f32 one on today's cores and rounds differently.

#include "kernels/cpu/grouped_gemm_epilogue.inl.h"

constexpr bool kManyRegisters = kVectors == 2;
// Most rows that meet all outputs of a panel at once; more rows take half of the outputs at a time.
constexpr int kMaxWideRows = kManyRegisters ? 12 : 3;

// 32-bit words of a register, for the bits of bf16 pairs.
using Words = uint32_t __attribute__((vector_size(sizeof(Lanes::F))));
inline Lanes::F even_of_pairs(Lanes::F pairs) {
  return reinterpret_cast<Lanes::F>(reinterpret_cast<Words>(pairs) << 16);
}
inline Lanes::F odd_of_pairs(Lanes::F pairs) {
  return reinterpret_cast<Lanes::F>(reinterpret_cast<Words>(pairs) & 0xFFFF0000u);
}

// Sums of a block: Rows x Vectors registers. Everything that touches them is inlined by force, or they would live in
// memory.
template <int Rows, int Vectors>
struct Sums {
  Lanes::F at[Rows][Vectors];

  [[gnu::always_inline]] void clear() {
    for (auto& row : at) {
      for (auto& sum : row) sum = Lanes::zero();
    }
  }
  // Adds x[r, k] * weight for every row; x points at column k of the first row.
  [[gnu::always_inline]] void add(const float* x, int64_t x_stride,
                                  const Lanes::F (&weight)[Vectors]) {
    if constexpr (Rows < Vectors) {
      Lanes::F value[Rows];
      for (int r = 0; r < Rows; ++r) value[r] = Lanes::set(x[r * x_stride]);
      for (int v = 0; v < Vectors; ++v) {
        for (int r = 0; r < Rows; ++r) at[r][v] = Lanes::fma(value[r], weight[v], at[r][v]);
      }
      return;
    }
    for (int r = 0; r < Rows; ++r) {
      const Lanes::F value = Lanes::set(x[r * x_stride]);
      for (int v = 0; v < Vectors; ++v) at[r][v] = Lanes::fma(value, weight[v], at[r][v]);
    }
  }
  [[gnu::always_inline]] void store(float* to) const {
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) Lanes::store(to + r * kPanel + v * Lanes::kWidth, at[r][v]);
    }
  }
};

// Asks for the two cache lines that a panel holds for an input (or a pair), a bit ahead of their use. The core's own
// prefetcher stops at the end of every page; any further ahead than this is worse.
// NOTE: without forced inlining GCC 12 takes this for a function without effect and drops it.
[[gnu::always_inline]] inline void fetch_ahead(const void* first, const void* second) {
  constexpr int64_t kAhead = 3072;
  _mm_prefetch(static_cast<const std::byte*>(first) + kAhead, _MM_HINT_T1);
  _mm_prefetch(static_cast<const std::byte*>(second) + kAhead, _MM_HINT_T1);
}

struct F32Panel {
  static constexpr int kMaxRows = kManyRegisters ? 12 : 6;

  template <int Rows, int Vectors>
  [[gnu::always_inline]] static void multiply(const float* x, int64_t k, const std::byte* panel,
                                              int first_vector, Sums<Rows, Vectors>& sums) {
    const auto* weight =
        static_cast<const float*>(static_cast<const void*>(panel)) + first_vector * Lanes::kWidth;
    for (int64_t i = 0; i < k; ++i, weight += kPanel) {
      if (first_vector == 0) fetch_ahead(weight, weight + kPanel / 2);
      Lanes::F w[Vectors];
      for (int v = 0; v < Vectors; ++v) w[v] = Lanes::load(weight + v * Lanes::kWidth);
      sums.add(x + i, k, w);
    }
  }
};

struct Bf16Panel {
  // Widening the weights is cheap beside the loads that more rows and fewer outputs would take.
  static constexpr int kMaxRows = kMaxWideRows;

  template <int Rows, int Vectors>
  [[gnu::always_inline]] static void multiply(const float* x, int64_t k, const std::byte* panel,
                                              int first_vector, Sums<Rows, Vectors>& sums) {
    const int64_t whole = k / kStep * kStep;
    for (int64_t i = 0; i < whole; i += kStep, panel += kStepBytes) {
      for (int pair = 0; pair < kStep / 2; ++pair) {
        add_pair(x + i + 2 * pair, k, panel + pair * 64, first_vector, sums);
      }
    }
    // x has no padding: what follows a row is another row, or nothing.
    const auto rest = static_cast<int>(k - whole);
    for (int pair = 0; pair < rest / 2; ++pair) {
      add_pair(x + whole + 2 * pair, k, panel + pair * 64, first_vector, sums);
    }
    if (rest % 2 != 0) {
      Lanes::F w[Vectors];
      load_pairs(panel + rest / 2 * 64, first_vector, w);
      for (auto& v : w) v = even_of_pairs(v);
      sums.add(x + k - 1, k, w);
    }
  }

 private:
  // Pairs of inputs for the outputs of the wanted vectors; `row` is the pair's row in the first
  // tile.
  template <int Vectors>
  [[gnu::always_inline]] static void load_pairs(const std::byte* row, int first_vector,
                                                Lanes::F (&pairs)[Vectors]) {
    for (int v = 0; v < Vectors; ++v) {
      const int output = (first_vector + v) * Lanes::kWidth;
      const std::byte* from = row + output / 16 * kTile + output % 16 * 4;
      pairs[v] = Lanes::load(static_cast<const float*>(static_cast<const void*>(from)));
    }
  }
  template <int Rows, int Vectors>
  [[gnu::always_inline]] static void add_pair(const float* x, int64_t k, const std::byte* row,
                                              int first_vector, Sums<Rows, Vectors>& sums) {
    if (first_vector == 0) fetch_ahead(row, row + kTile);
    Lanes::F pairs[Vectors], weight[Vectors];
    load_pairs(row, first_vector, pairs);
    for (int v = 0; v < Vectors; ++v) weight[v] = even_of_pairs(pairs[v]);
    sums.add(x, k, weight);
    for (int v = 0; v < Vectors; ++v) weight[v] = odd_of_pairs(pairs[v]);
    sums.add(x + 1, k, weight);
  }
};

// `Rows` rows x [Rows, k] times a panel to sums [Rows, 32].
template <class Panel, int Rows>
void multiply_rows(const float* x, int64_t k, const std::byte* panel, float* to) {
  constexpr int kAtOnce = Rows <= kMaxWideRows ? kVectors : 2;
  for (int v = 0; v < kVectors; v += kAtOnce) {
    Sums<Rows, kAtOnce> sums;
    sums.clear();
    Panel::multiply(x, k, panel, v, sums);
    sums.store(to + v * Lanes::kWidth);
  }
}

template <class Panel, int Rows = Panel::kMaxRows>
void multiply_block(int64_t rows, const float* x, int64_t k, const std::byte* panel, float* to) {
  if (rows == Rows) {
    multiply_rows<Panel, Rows>(x, k, panel, to);
  } else if constexpr (Rows > 1) {
    multiply_block<Panel, Rows - 1>(rows, x, k, panel, to);
  }
}

template <class Panel>
void run_task(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
              const Task& task) {
  alignas(64) float sums[2][Panel::kMaxRows * kPanel];
  const int parts = matrices(problem);
  const int64_t bytes = panel_bytes(problem);
  const int64_t rows = task.row_end - task.row;
  const int64_t blocks = divide_up(rows, Panel::kMaxRows);
  const float* x = static_cast<const float*>(args.x) + task.first_row * problem.k;
  SplitClock clock(args.split);
  for (int64_t panel = task.panel; panel < task.panel_end; ++panel) {
    const std::byte* weight = args.weight + task.slot * slot_bytes(problem) + panel * parts * bytes;
    for (int64_t b = 0; b < blocks; ++b) {  // of equal size, give or take one
      const int64_t row = task.row + rows * b / blocks, end = task.row + rows * (b + 1) / blocks;
      for (int part = 0; part < parts; ++part) {
        multiply_block<Panel>(end - row, x + row * problem.k, problem.k, weight + part * bytes,
                              sums[part]);
      }
      clock.time([&] {
        PanelOutput{problem, args, task, panel}.finish(sums[0], parts == 2 ? sums[1] : nullptr, row,
                                                       end - row);
      });
    }
  }
}

template <class Panel>
void run_grouped_gemm(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
                      std::span<std::byte> workspace, const Stream& stream) {
  const WorkRates rates{.bytes_per_ns = 10, .flops_per_ns = Lanes::kWidth == 16 ? 120.0 : 60.0};
  const Work::Limits limits{.max_panels = 64, .max_rows = 512};
  const Work work(problem, args.slot_offset, rates, limits, stream.pool().num_threads(), workspace);
  work.for_each(stream.pool(),
                [&](const Task& task, int) { run_task<Panel>(problem, args, task); });
}
