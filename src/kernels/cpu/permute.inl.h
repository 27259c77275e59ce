// SPDX-License-Identifier: Apache-2.0
// Gather and combine, written once over Lanes.

// A row on its way, times its weight when it has one. A product with 1 would not do instead: it changes the bits of
// a signalling NaN.
struct GatherRow {
  const float* from;
  const float* weight;  // null: as it is
  Lanes::F load(int64_t c) const { return weighed(Lanes::load(from + c)); }
  Lanes::F load_first(int64_t c, int n) const { return weighed(Lanes::load_first(from + c, n)); }
  Lanes::F weighed(Lanes::F v) const {
    return weight != nullptr ? Lanes::mul(Lanes::set(*weight), v) : v;
  }
};

// One row into tiles_bf16 (see RowLayout): 64 bytes for every 32 columns, padded with zeros.
inline void store_tile_row(const GatherRow& row, int64_t width, std::byte* to) {
  constexpr int kStep = 32;
  int64_t c = 0;
  for (; c + kStep <= width; c += kStep, to += 2048) {
    auto* at = reinterpret_cast<Bf16*>(to);
    for (int i = 0; i < kStep; i += Lanes::kWidth) Lanes::store(at + i, row.load(c + i));
  }
  if (c == width) return;
  auto* at = reinterpret_cast<Bf16*>(to);
  for (int i = 0; i < kStep; i += Lanes::kWidth) {
    const int64_t left = width - c - i;
    const int n = left < 0 ? 0 : left > Lanes::kWidth ? Lanes::kWidth : static_cast<int>(left);
    Lanes::store(at + i, row.load_first(c + i, n));
  }
}

inline void copy_row(const GatherRow& row, int64_t width, float* to) {
  int64_t c = 0;
  for (; c + Lanes::kWidth <= width; c += Lanes::kWidth) {
    Lanes::store(to + c, row.load(c));
  }
  const int rest = static_cast<int>(width - c);
  if (rest > 0) Lanes::store_first(to + c, rest, row.load_first(c, rest));
}

// A row that no token fills.
inline void zero_row(RowLayout layout, int64_t width, std::byte* to) {
  if (layout == RowLayout::rows_f32) {
    std::memset(to, 0, static_cast<size_t>(width) * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < width; c += 32, to += 2048) std::memset(to, 0, 64);
}

// Rows [begin, end); the slots before `begin` are walked to find where its tiles start.
inline void gather_rows(const Gather::Problem& problem, const Gather::Args& args, int64_t begin,
                        int64_t end) {
  const int64_t width = problem.width, tile_bytes = (width + 31) / 32 * 2048;
  int64_t block = 0;
  int slot = 0;
  for (int64_t r = begin; r < end; ++r) {
    while (args.slot_offset[slot + 1] <= r) {
      block += tile_blocks(args.slot_offset[slot + 1] - args.slot_offset[slot]);
      ++slot;
    }
    const int64_t token = args.row_token != nullptr ? args.row_token[r] : r;
    const int64_t i = r - args.slot_offset[slot];
    const int64_t at =
        problem.out == RowLayout::rows_f32
            ? r * width * static_cast<int64_t>(sizeof(float))
            : (block + i / kTileRows) * tile_bytes + i % kTileRows / 16 * 1024 + i % 16 * 64;
    std::byte* to = static_cast<std::byte*>(args.y) + at;
    if (token < 0) {
      zero_row(problem.out, width, to);
      continue;
    }
    const GatherRow row{args.x + token * width,
                        args.row_weight != nullptr ? args.row_weight + r : nullptr};
    if (problem.out == RowLayout::rows_f32) {
      copy_row(row, width, reinterpret_cast<float*>(to));
    } else {
      store_tile_row(row, width, to);
    }
  }
}

inline void gather_all(const Gather::Problem& problem, const Gather::Args& args,
                       const Stream& stream) {
  const int64_t rows = args.slot_offset[problem.groups];
  stream.pool().for_range(
      rows, 1 + kGrainValues / problem.width,
      [&](int64_t begin, int64_t end, int) { gather_rows(problem, args, begin, end); });
}

// kCount registers of token t from column d on: rows in the order of the picks, then the shared part, then the scale.
template <int kCount>
inline void combine_columns(const Combine::Problem& problem, const Combine::Args& args, int64_t t,
                            int64_t d) {
  constexpr int kWidth = Lanes::kWidth;
  const int64_t width = problem.width;
  Lanes::F sum[kCount];
  for (int i = 0; i < kCount; ++i) sum[i] = Lanes::zero();
  for (int k = 0; k < problem.top_k; ++k) {
    const int64_t row = args.pick_row[t * problem.top_k + k];
    if (row < 0) continue;
    const Lanes::F weight = Lanes::set(args.weight[t * problem.top_k + k]);
    const float* from = args.rows + row * width + d;
    for (int i = 0; i < kCount; ++i) {
      sum[i] = Lanes::fma(weight, Lanes::load(from + i * kWidth), sum[i]);
    }
  }
  if (args.shared != nullptr) {
    const Lanes::F weight = Lanes::set(args.shared_weight != nullptr ? args.shared_weight[t] : 1);
    const float* from = args.shared + t * width + d;
    for (int i = 0; i < kCount; ++i) {
      sum[i] = Lanes::fma(weight, Lanes::load(from + i * kWidth), sum[i]);
    }
  }
  float* to = args.y + t * width + d;
  for (int i = 0; i < kCount; ++i) {
    Lanes::store(to + i * kWidth,
                 Lanes::fma(Lanes::set(args.scale), sum[i], Lanes::load(to + i * kWidth)));
  }
}

// The columns that fill no register, one by one, in the same order of operations.
inline void combine_column(const Combine::Problem& problem, const Combine::Args& args, int64_t t,
                           int64_t d) {
  const int64_t width = problem.width;
  float sum = 0;
  for (int k = 0; k < problem.top_k; ++k) {
    const int64_t row = args.pick_row[t * problem.top_k + k];
    if (row < 0) continue;
    sum = __builtin_fmaf(args.weight[t * problem.top_k + k], args.rows[row * width + d], sum);
  }
  if (args.shared != nullptr) {
    const float weight = args.shared_weight != nullptr ? args.shared_weight[t] : 1;
    sum = __builtin_fmaf(weight, args.shared[t * width + d], sum);
  }
  args.y[t * width + d] = __builtin_fmaf(args.scale, sum, args.y[t * width + d]);
}

inline void combine_all(const Combine::Problem& problem, const Combine::Args& args,
                        const Stream& stream) {
  constexpr int kWidth = Lanes::kWidth, kMany = 4;
  const int64_t width = problem.width;
  const int64_t grain = 1 + kGrainValues / (width * (problem.top_k + 1));
  stream.pool().for_range(args.tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t d = 0;
      for (; d + kMany * kWidth <= width; d += kMany * kWidth) {
        combine_columns<kMany>(problem, args, t, d);
      }
      for (; d + kWidth <= width; d += kWidth) combine_columns<1>(problem, args, t, d);
      for (; d < width; ++d) combine_column(problem, args, t, d);
    }
  });
}
