// SPDX-License-Identifier: Apache-2.0
// Paged attention, the arithmetic of one tile (see attention_work.h), written once over Lanes.
//
// Keys are taken in runs of four registers. They lie transposed in the cache, so a register holds one value of many keys
// and scores are plain multiply-adds without sums across lanes:
//
//   score    s[r, j] = scale * sum over z of q[r, z] k[z, j]        rows x 4 registers of keys, z ascending
//   soften   highest, sum and s := e^(s - highest), online
//   mix      out[r, :] = factor[r] out[r, :] + sum over j of s[r, j] v[j, :]   rows x registers of the head, j ascending
//
// A row's arithmetic does not depend on the other rows of its tile: each result is one chain of operations, and a key
// that only other rows see changes no bit (it scales by 1 and adds 0).
// Small tiles read bf16 from the cache as they go; large ones first widen the run into scratch, for all rows.

/// Where the keys and values of a run lie.
template <class T>
struct RunView {
  const T* keys[4];                   // of a register's keys: value z at z * key_stride
  const T* values[cpu::kMaxRun / 8];  // of eight keys, each [Z], value_stride apart
  int64_t key_stride, value_stride;
};

/// What a row of the tile is about: worked out once per span, because it takes divisions.
struct RowPlace {
  const float* q;      // [Z]
  int64_t begin, end;  // the positions that it sees
};

struct TileWork {
  static constexpr int kWidth = Lanes::kWidth;
  static constexpr int kGroups = 4;  // registers of a run
  static constexpr int kRun = kGroups * kWidth;
  static constexpr int kRows = kWidth / 4;  // rows x 4 accumulators: half of the registers
  static constexpr int kDirectRows =
      8;  // beyond, widening once is cheaper than widening per kRows rows
  static constexpr float kLowest =
      -1e30f;  // finite, so that rows which have seen no key subtract to no NaN
  static_assert(cpu::kSpanKeys % kRun == 0 && kRun <= cpu::kMaxRun);

  const Attention::Problem& p;
  const Attention::Args& args;
  const cpu::AttentionTile& tile;
  const cpu::AttentionState& state;
  float* scratch;

  int num_rows() const { return static_cast<int>(tile.num_tokens) * (p.heads / p.kv_heads); }
  int64_t head() const { return (p.head_dim + kWidth - 1) / kWidth * kWidth; }
  int64_t out_stride() const { return cpu::padded_head(p); }
  float* wide_keys() const { return scratch; }
  float* wide_values() const { return scratch + cpu::kMaxRun * out_stride(); }
  float* scores(int row) const {
    return scratch + 2 * cpu::kMaxRun * out_stride() + row * int64_t{kRun};
  }
  RowPlace& place(int row) const {
    float* behind_scores = scratch + cpu::kMaxRun * (2 * out_stride() + cpu::tile_rows(p));
    return reinterpret_cast<RowPlace*>(behind_scores)[row];
  }

  // The element of the caches at which the block of a position begins.
  int64_t block_at(int64_t position) const {
    const int32_t* table = args.block_table + int64_t{tile.sequence} * args.max_blocks;
    const int64_t block = table[position / p.block_tokens];
    return (block * p.kv_heads + tile.kv_head) * p.block_tokens * p.head_dim;
  }

  // Keys [begin, end) of the run at `at`, as they lie in the cache. Whole registers of keys are read: those of [begin,
  // end) and others of their block, whose scores are masked.
  template <class T>
  RunView<T> cached_run(int64_t at, int begin, int end) const {
    RunView<T> view{{}, {}, p.block_tokens, p.head_dim};
    for (int j = begin / kWidth * kWidth; j < end; j += kWidth) {
      view.keys[j / kWidth] =
          static_cast<const T*>(args.k_cache) + block_at(at + j) + (at + j) % p.block_tokens;
    }
    for (int j = begin / 8 * 8; j < end; j += 8) {
      view.values[j / 8] = static_cast<const T*>(args.v_cache) + block_at(at + j) +
                           (at + j) % p.block_tokens * p.head_dim;
    }
    return view;
  }

  // The same, widened into scratch. Blocks are multiples of eight keys, which may be half a register. All blocks of the
  // run are read side by side: one after the other, each would start anew in the memory's eyes (9 instead of 15 GB/s).
  template <class T>
  RunView<float> widened_run(int64_t at, int begin, int end) const {
    const T *keys[kRun / 8], *values[kRun / 8];
    const int step = p.block_tokens % kWidth == 0 ? kWidth : 8;
    const int first_key = begin / step * step, first_value = begin / 8 * 8;
    for (int j = first_key; j < end; j += step) {
      keys[j / step] =
          static_cast<const T*>(args.k_cache) + block_at(at + j) + (at + j) % p.block_tokens;
    }
    for (int j = first_value; j < end; j += 8) {
      values[j / 8] = static_cast<const T*>(args.v_cache) + block_at(at + j) +
                      (at + j) % p.block_tokens * p.head_dim;
    }
    const int64_t width = p.head_dim, stride = p.block_tokens, to_stride = out_stride();
    float *to_keys = wide_keys(), *to_values = wide_values();
    for (int64_t z = 0; z < width; ++z) {
      for (int j = first_key; j < end; j += step) {
        widen_keys(keys[j / step] + z * stride, step, to_keys + z * kRun + j);
      }
    }
    for (int i = 0; i < 8; ++i) {
      for (int j = first_value + i; j < end; j += 8) {
        if (j >= begin) widen_value(values[j / 8] + i * width, to_values + j * to_stride);
      }
    }
    RunView<float> view{{}, {}, kRun, to_stride};
    for (int c = 0; c < kGroups; ++c) view.keys[c] = to_keys + c * kWidth;
    for (int g = 0; g < kRun / 8; ++g) view.values[g] = to_values + g * 8 * to_stride;
    return view;
  }
  template <class T>
  static void widen_keys(const T* from, int count, float* to) {
    if (count == kWidth) {
      Lanes::store(to, Lanes::load(from));
    } else {
      Lanes::store_first(to, count, Lanes::load_first(from, count));
    }
  }
  template <class T>
  void widen_value(const T* from, float* to) const {
    const int64_t width = p.head_dim;
    int64_t z = 0;
    for (; z + kWidth <= width; z += kWidth) Lanes::store(to + z, Lanes::load(from + z));
    if (z == width) return;
    Lanes::store(to + z, Lanes::load_first(from + z, static_cast<int>(width - z)));
  }

  // The blocks of a sequence lie anywhere, so the hardware cannot guess where the next run is. Widened runs need no such
  // help.
  template <class T>
  [[gnu::always_inline]] static void prefetch(const T* at) {
    if constexpr (sizeof(T) == 2) Lanes::prefetch(at);
  }

  // Dot products of kCount rows with kColumns registers of keys, from register c on.
  // NOTE: a store through Lanes may alias anything, so what the loops use stands in locals.
  template <int kCount, int kColumns, class T>
  void score(const RunView<T>& run, const RunView<T>& next, int row, int c) const {
    const float* q[kCount];
    const T *k[kColumns], *ahead[kColumns];
    Lanes::F sum[kCount][kColumns];
    for (int m = 0; m < kCount; ++m) {
      q[m] = place(row + m).q;
      for (int n = 0; n < kColumns; ++n) sum[m][n] = Lanes::zero();
    }
    for (int n = 0; n < kColumns; ++n) {
      k[n] = run.keys[c + n];
      ahead[n] = next.keys[c + n];
    }
    const int64_t width = p.head_dim, stride = run.key_stride;
    float* to = scores(row) + c * kWidth;
    for (int64_t z = 0; z < width; ++z) {
      Lanes::F key[kColumns];
      for (int n = 0; n < kColumns; ++n) {
        key[n] = Lanes::load(k[n] + z * stride);
        prefetch(ahead[n] + z * stride);
      }
      for (int m = 0; m < kCount; ++m) {
        const Lanes::F query = Lanes::set(q[m][z]);
        for (int n = 0; n < kColumns; ++n) sum[m][n] = Lanes::fma(query, key[n], sum[m][n]);
      }
    }
    for (int m = 0; m < kCount; ++m) {
      for (int n = 0; n < kColumns; ++n) Lanes::store(to + m * kRun + n * kWidth, sum[m][n]);
    }
  }

  // Scores [first, first + kColumns) registers of a row against the positions that it sees: those become -infinity that
  // it does not.
  template <int kColumns>
  void mask(int row, int64_t at, int first, Lanes::F (&s)[kColumns]) const {
    const int begin = clamp(place(row).begin - at), end = clamp(place(row).end - at);
    if (begin <= first * kWidth && end >= (first + kColumns) * kWidth) return;
    for (int n = 0; n < kColumns; ++n) {
      const int lane = (first + n) * kWidth;
      s[n] = Lanes::select(Lanes::between(begin - lane, end - lane), s[n],
                           Lanes::set(-__builtin_inff()));
    }
  }
  static int clamp(int64_t key) { return key < 0 ? 0 : key > kRun ? kRun : static_cast<int>(key); }

  // The online softmax over kColumns registers of scores from register `first` on: scores become e^(s - highest), and
  // factor[m] what the rows' earlier sums are worth now.
  template <int kCount, int kColumns>
  void soften(int row, int64_t at, int first, float (&factor)[kWidth]) const {
    const Lanes::F scale = Lanes::set(p.scale);
    float *at_score = scores(row) + first * kWidth, *highest = state.highest + row;
    Lanes::F part[kCount];
    Lanes::store(factor, Lanes::zero());
    for (int m = 0; m < kCount; ++m, at_score += kRun) {
      Lanes::F s[kColumns];
      for (int n = 0; n < kColumns; ++n) {
        s[n] = Lanes::mul(Lanes::load(at_score + n * kWidth), scale);
      }
      mask(row + m, at, first, s);
      Lanes::F top = Lanes::set(highest[m]);
      for (int n = 0; n < kColumns; ++n) top = Lanes::max(top, s[n]);
      const float now = Lanes::largest(top);
      factor[m] = highest[m] - now;
      highest[m] = now;
      part[m] = Lanes::zero();
      for (int n = 0; n < kColumns; ++n) {
        const Lanes::F e = Lanes::exp(Lanes::sub(s[n], Lanes::set(now)));
        Lanes::store(at_score + n * kWidth, e);
        part[m] = Lanes::add(part[m], e);
      }
    }
    Lanes::store(factor, Lanes::exp(Lanes::load(factor)));
    float* sum = state.sum + row * cpu::kMaxWidth;
    for (int m = 0; m < kCount; ++m, sum += cpu::kMaxWidth) {
      Lanes::store(sum, Lanes::fma(Lanes::load(sum), Lanes::set(factor[m]), part[m]));
    }
  }

  // kCount rows and kColumns registers of the head from z on, over the keys [begin, end).
  template <int kCount, int kColumns, class T>
  void mix(const RunView<T>& run, const RunView<T>& next, int row, int64_t z, int begin, int end,
           const float (&factor)[kWidth]) const {
    const int64_t out_step = out_stride(), value_step = run.value_stride;
    float* out = state.out + row * out_step + z;
    Lanes::F sum[kCount][kColumns];
    for (int m = 0; m < kCount; ++m) {
      for (int n = 0; n < kColumns; ++n) {
        sum[m][n] = Lanes::mul(Lanes::set(factor[m]), Lanes::load(out + m * out_step + n * kWidth));
      }
    }
    const float* s = scores(row);
    for (int j = begin; j < end;) {
      const T* v = run.values[j / 8] + j % 8 * value_step + z;
      const T* ahead = next.values[j / 8] + j % 8 * value_step + z;
      const int stop = j / 8 * 8 + 8 < end ? j / 8 * 8 + 8 : end;
      for (; j < stop; ++j, v += value_step, ahead += value_step) {
        Lanes::F value[kColumns];
        for (int n = 0; n < kColumns; ++n) value[n] = Lanes::load(v + n * kWidth);
        for (int n = 0; n < kColumns; n += 2) prefetch(ahead + n * kWidth);
        for (int m = 0; m < kCount; ++m) {
          const Lanes::F weight = Lanes::set(s[m * kRun + j]);
          for (int n = 0; n < kColumns; ++n) sum[m][n] = Lanes::fma(weight, value[n], sum[m][n]);
        }
      }
    }
    for (int m = 0; m < kCount; ++m) {
      for (int n = 0; n < kColumns; ++n) Lanes::store(out + m * out_step + n * kWidth, sum[m][n]);
    }
  }
  template <int kCount, int kColumns, class T>
  void mix_from(const RunView<T>& run, const RunView<T>& next, int row, int64_t z, int begin,
                int end, const float (&factor)[kWidth]) const {
    for (; z + kColumns * kWidth <= head(); z += kColumns * kWidth) {
      mix<kCount, kColumns>(run, next, row, z, begin, end, factor);
    }
    if constexpr (kColumns > 1)
      mix_from<kCount, kColumns / 2>(run, next, row, z, begin, end, factor);
  }

  // kCount rows against the run at `at`, of which the tile sees [begin, end).
  template <int kCount, class T>
  void attend(const RunView<T>& run, const RunView<T>& next, int64_t at, int begin, int end,
              int row) const {
    begin = max_of(begin, place(row).begin - at);
    end = min_of(end, place(row + kCount - 1).end - at);
    if (begin >= end) return;
    const int first = begin / kWidth, last = (end + kWidth - 1) / kWidth;
    float factor[kWidth];
    switch (last - first) {
      case 1:
        score_and_soften<kCount, 1>(run, next, row, at, first, factor);
        break;
      case 2:
        score_and_soften<kCount, 2>(run, next, row, at, first, factor);
        break;
      case 3:
        score_and_soften<kCount, 3>(run, next, row, at, first, factor);
        break;
      default:
        score_and_soften<kCount, 4>(run, next, row, at, first, factor);
        break;
    }
    constexpr int kColumns = kRows * 4 / kCount < 8 ? kRows * 4 / kCount : 8;
    mix_from<kCount, kColumns>(run, next, row, 0, begin, end, factor);
  }
  template <int kCount, int kColumns, class T>
  void score_and_soften(const RunView<T>& run, const RunView<T>& next, int row, int64_t at,
                        int first, float (&factor)[kWidth]) const {
    score<kCount, kColumns>(run, next, row, first);
    soften<kCount, kColumns>(row, at, first, factor);
  }
  static int max_of(int a, int64_t b) { return a > b ? a : static_cast<int>(b); }
  static int min_of(int a, int64_t b) { return a < b ? a : static_cast<int>(b); }

  template <class T>
  void attend_all(const RunView<T>& run, const RunView<T>& next, int64_t at, int begin,
                  int end) const {
    const int rows = num_rows();
    int row = 0;
    for (; row + kRows <= rows; row += kRows) attend<kRows>(run, next, at, begin, end, row);
    if constexpr (kRows > 2) {
      for (; row + 2 <= rows; row += 2) attend<2>(run, next, at, begin, end, row);
    }
    for (; row < rows; ++row) attend<1>(run, next, at, begin, end, row);
  }

  template <class T>
  void take_keys(cpu::KeyRange keys) const {
    const bool whole_registers = p.block_tokens % kWidth == 0 && p.head_dim % kWidth == 0;
    const bool direct = whole_registers && (sizeof(T) == 4 || num_rows() <= kDirectRows);
    for (int64_t at = keys.begin / kRun * kRun; at < keys.end; at += kRun) {
      const int begin = max_of(0, keys.begin - at), end = min_of(kRun, keys.end - at);
      if (direct) {
        const RunView<T> run = cached_run<T>(at, begin, end);
        const bool more = at + 2 * kRun <= keys.end;
        attend_all(run, more ? cached_run<T>(at + kRun, 0, kRun) : run, at, begin, end);
      } else {
        const RunView<float> run = widened_run<T>(at, begin, end);
        attend_all(run, run, at, begin, end);
      }
    }
  }

  void start() const {
    const int group = p.heads / p.kv_heads;
    int row = 0;
    for (int64_t t = tile.first_token; t < tile.first_token + tile.num_tokens; ++t) {
      const int64_t token = args.seq_offset[tile.sequence] + t;
      const int64_t end = args.context_len[tile.sequence] + t + 1;
      const int64_t begin = p.window > 0 && end > p.window ? end - p.window : 0;
      const float* q = args.q + (token * p.heads + int64_t{tile.kv_head} * group) * p.head_dim;
      for (int i = 0; i < group; ++i, ++row) {
        place(row) = {q + i * p.head_dim, begin, end};
        state.highest[row] = kLowest;
      }
    }
    const int64_t floats = num_rows() * out_stride();
    for (int64_t i = 0; i < floats; i += kWidth) Lanes::store(state.out + i, Lanes::zero());
    for (int64_t i = 0; i < num_rows() * cpu::kMaxWidth; i += kWidth) {
      Lanes::store(state.sum + i, Lanes::zero());
    }
  }

  // Divides by the sums and writes the rows to their tokens.
  void finish() const {
    const int64_t group = p.heads / p.kv_heads, width = p.head_dim;
    const float *out = state.out, *total = state.sum;
    for (int64_t t = tile.first_token; t < tile.first_token + tile.num_tokens; ++t) {
      const int64_t token = args.seq_offset[tile.sequence] + t;
      float* to = args.out + (token * p.heads + tile.kv_head * group) * width;
      for (int64_t i = 0; i < group;
           ++i, to += width, out += out_stride(), total += cpu::kMaxWidth) {
        const Lanes::F scale = Lanes::set(1 / Lanes::sum(Lanes::load(total)));
        for (int64_t z = 0; z < width; z += kWidth) {
          const int n = width - z < kWidth ? static_cast<int>(width - z) : kWidth;
          Lanes::store_first(to + z, n, Lanes::mul(Lanes::load(out + z), scale));
        }
      }
    }
  }
};

inline void attention_span(const Attention::Problem& p, const Attention::Args& args,
                           const cpu::AttentionTile& tile, cpu::KeyRange keys,
                           const cpu::AttentionState& state, float* scratch) noexcept {
  const TileWork work{p, args, tile, state, scratch};
  work.start();
  if (p.cache == DType::f32) {
    work.take_keys<float>(keys);
  } else {
    work.take_keys<Bf16>(keys);
  }
}

inline void attention_merge(const Attention::Problem& p, int64_t rows,
                            const cpu::AttentionState& earlier,
                            const cpu::AttentionState& later) noexcept {
  constexpr int kWidth = Lanes::kWidth;
  const int64_t stride = cpu::padded_head(p);
  for (int64_t r = 0; r < rows; ++r) {
    const float a = earlier.highest[r], b = later.highest[r], highest = a > b ? a : b;
    const Lanes::F keep = Lanes::exp(Lanes::set(a - highest));
    const Lanes::F take = Lanes::exp(Lanes::set(b - highest));
    const auto add = [&](float* to, const float* from) {
      Lanes::store(to, Lanes::fma(Lanes::load(to), keep, Lanes::mul(Lanes::load(from), take)));
    };
    earlier.highest[r] = highest;
    add(earlier.sum + r * cpu::kMaxWidth, later.sum + r * cpu::kMaxWidth);
    for (int64_t z = 0; z < p.head_dim; z += kWidth) {
      add(earlier.out + r * stride + z, later.out + r * stride + z);
    }
  }
}

inline void attention_finish(const Attention::Problem& p, const Attention::Args& args,
                             const cpu::AttentionTile& tile,
                             const cpu::AttentionState& state) noexcept {
  TileWork{p, args, tile, state, nullptr}.finish();
}

constexpr cpu::AttentionSteps kAttentionSteps{attention_span, attention_merge, attention_finish};
