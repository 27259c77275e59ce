// SPDX-License-Identifier: Apache-2.0
// Paged attention on AMX tiles, for tiles of many rows (prefill); fewer rows take the plan of attention.inl.h. Included
// inside a target region after attention.inl.h and grouped_gemm_amx.inl.h.
//
//   scores   [16 rows, 16 keys] += q_high k + q_low k    over Z in steps of 32; q is split into two bf16 parts (2^-17)
//   soften   as attention.inl.h, in f32
//   mix      [16 rows, 16 of Z] += p v                   over the run's keys in steps of 32; p is rounded to bf16
//
// Keys and values of a run are packed once, for all rows: the second operand of a tile product holds two consecutive
// steps of the sum side by side. Values that the tile does not see are packed as zeros, because 0 times a NaN is one.
// Source: Dao et al. 2022, arXiv 2205.14135 (blocking of the online softmax).

struct TileAttention {
  static constexpr int kTileRows16 = 16;
  static constexpr int kTileStep = 32;              // terms of a sum that one tile product takes
  static constexpr int kTileElements = 16 * 32;     // bf16 of a tile
  static constexpr int kRun = TileWork::kRun;       // keys of a run
  static constexpr int kKeyTiles = kRun / 16;       // tiles of scores of 16 rows
  static constexpr int kFewRows = kTileRows16 - 1;  // that are cheaper without tiles
  static_assert(kRun == 64 && Lanes::kWidth == 16);

  const TileWork& work;
  Bf16 *keys, *values;           // packed: [Z / 32][4 tiles of keys], [2 steps of keys][Z / 16]
  Bf16 *query_high, *query_low;  // [rows, Z]
  Bf16* weights;                 // [rows, run]
  int64_t width;                 // Z
  int blocks;                    // of 16 rows

  // The packed operands take the place of the widened run; see attention_scratch().
  explicit TileAttention(const TileWork& w) : work(w), width(w.p.head_dim) {
    const int64_t half = int64_t{cpu::kMaxRun} * width;
    keys = reinterpret_cast<Bf16*>(w.wide_keys());
    values = reinterpret_cast<Bf16*>(w.wide_values());
    query_high = keys + half;
    query_low = values + half;
    weights = reinterpret_cast<Bf16*>(w.scratch + cpu::attention_weights_at(w.p));
    blocks = (w.num_rows() + kTileRows16 - 1) / kTileRows16;
  }

  // Two rows of 16 bf16 as one row of a second operand: a0 b0 a1 b1 ...
  static void interleave(__m256i a, __m256i b, Bf16* to) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
    _mm512_store_si512(reinterpret_cast<__m512i*>(to), _mm512_permutexvar_epi16(order, both));
  }
  static __m256i load16(const Bf16* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  // Splits the queries into a bf16 and what it leaves; rows that no token has are zero.
  void split_queries() const {
    for (int row = 0; row < blocks * kTileRows16; ++row) {
      Bf16 *high = query_high + row * width, *low = query_low + row * width;
      for (int64_t z = 0; z < width; z += 16) {
        const bool real = row < work.num_rows();
        const Lanes::F q = real ? Lanes::load(work.place(row).q + z) : Lanes::zero();
        Lanes::store(high + z, q);
        Lanes::store(low + z, Lanes::sub(q, Lanes::load(high + z)));
      }
    }
  }

  // The tiles of keys [first, last) of the run at `at`: in the cache a key's values lie P apart.
  void pack_keys(int64_t at, int first, int last) const {
    const int64_t stride = work.p.block_tokens;
    for (int n = first; n < last; ++n) {
      const int64_t position = at + n * 16;
      const Bf16* from =
          static_cast<const Bf16*>(work.args.k_cache) + work.block_at(position) + position % stride;
      for (int64_t z = 0; z < width; z += 2) {
        Bf16* to = keys + (z / kTileStep * kKeyTiles + n) * kTileElements + z % kTileStep * 16;
        interleave(load16(from + z * stride), load16(from + (z + 1) * stride), to);
      }
    }
  }

  // The values of keys [begin, end) of the run at `at`, zeros for the others of its steps. Sixteen keys lie in one block.
  void pack_values(int64_t at, int begin, int end) const {
    const int stop = steps_until(end) * kTileStep;
    for (int first = begin / kTileStep * kTileStep; first < stop; first += 16) {
      const bool seen = first < end && first + 16 > begin;
      const Bf16* from = seen ? value_at(at + first) : nullptr;
      for (int j = first; j < first + 16; j += 2) {
        pack_pair(from + (j - first) * width, seen && j >= begin && j < end,
                  seen && j + 1 >= begin && j + 1 < end, j);
      }
    }
  }
  // Two keys' values, next to each other at `from`.
  void pack_pair(const Bf16* from, bool first_seen, bool second_seen, int j) const {
    Bf16* to = values + j / kTileStep * (width / 16) * kTileElements + j % kTileStep * 16;
    const __m256i zero = _mm256_setzero_si256();
    for (int64_t z = 0; z < width; z += 16, to += kTileElements) {
      interleave(first_seen ? load16(from + z) : zero,
                 second_seen ? load16(from + width + z) : zero, to);
    }
  }
  const Bf16* value_at(int64_t position) const {
    return static_cast<const Bf16*>(work.args.v_cache) + work.block_at(position) +
           position % work.p.block_tokens * width;
  }
  static int steps_until(int key) { return (key + kTileStep - 1) / kTileStep; }

  // Scores of a block of 16 rows with all four tiles of keys; those that were not packed come out as anything.
  void score(int block) const {
    const Bf16* high = query_high + block * kTileRows16 * width;
    const Bf16* low = query_low + block * kTileRows16 * width;
    asm volatile("" : : : "memory");  // GCC's tile loads do not say that they read memory
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const int64_t row_bytes = width * 2;
    for (int64_t z = 0; z < width; z += kTileStep) {
      const Bf16* key = keys + z / kTileStep * kKeyTiles * kTileElements;
      _tile_loadd(4, high + z, row_bytes);
      _tile_loadd(5, low + z, row_bytes);
      _tile_loadd(6, key, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, key + kTileElements, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(0, 5, 6);
      _tile_dpbf16ps(1, 5, 7);
      _tile_loadd(6, key + 2 * kTileElements, 64);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(7, key + 3 * kTileElements, 64);
      _tile_dpbf16ps(3, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    float* to = work.scores(block * kTileRows16);
    constexpr int kStride = kRun * 4;
    _tile_stored(0, to, kStride);
    _tile_stored(1, to + 16, kStride);
    _tile_stored(2, to + 32, kStride);
    _tile_stored(3, to + 48, kStride);
  }

  // The online softmax of a block, and its weights in bf16; what the rows had so far is scaled.
  void soften(int block, int64_t at) const {
    const int rows = work.num_rows();
    int row = block * kTileRows16;
    const int end = row + kTileRows16;
    for (; row + 4 <= end && row + 4 <= rows; row += 4) soften_rows<4>(row, at);
    for (; row < end && row < rows; ++row) soften_rows<1>(row, at);
    for (; row < end; ++row) {
      for (int j = 0; j < kRun; j += 16) Lanes::store(weights + row * kRun + j, Lanes::zero());
    }
  }
  template <int kCount>
  void soften_rows(int row, int64_t at) const {
    float factor[Lanes::kWidth];
    work.soften<kCount, TileWork::kGroups>(row, at, 0, factor);
    for (int m = 0; m < kCount; ++m) {
      const float* from = work.scores(row + m);
      Bf16* to = weights + (row + m) * kRun;
      for (int j = 0; j < kRun; j += 16) {
        // Weights may lose their subnormal numbers, which Lanes::store would keep at the price of eight instructions.
        const __m256i bits = (__m256i)_mm512_cvtneps_pbh(Lanes::load(from + j));
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + j), bits);
      }
      if (factor[m] == 1.0f) continue;
      float* out = work.state.out + (row + m) * work.out_stride();
      const Lanes::F scale = Lanes::set(factor[m]);
      for (int64_t z = 0; z < width; z += 16) {
        Lanes::store(out + z, Lanes::mul(scale, Lanes::load(out + z)));
      }
    }
  }

  // Adds the run's weighted values to the rows of a block, two columns of tiles at a time.
  void mix(int block, int begin, int end) const {
    const int64_t stride = work.out_stride();
    const int first = begin / kTileStep, last = steps_until(end);
    const Bf16* weight = weights + block * kTileRows16 * kRun;
    float* out = work.state.out + block * kTileRows16 * stride;
    for (int64_t z = 0; z < width; z += 32) {
      asm volatile("" : : : "memory");
      _tile_loadd(0, out + z, stride * 4);
      _tile_loadd(1, out + z + 16, stride * 4);
      for (int step = first; step < last; ++step) {
        const Bf16* value = values + (step * (width / 16) + z / 16) * kTileElements;
        _tile_loadd(4, weight + step * kTileStep, kRun * 2);
        _tile_loadd(6, value, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, value + kTileElements, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      _tile_stored(0, out + z, stride * 4);
      _tile_stored(1, out + z + 16, stride * 4);
    }
  }

  // A block of rows against keys [begin, end) of the run, as far as one of its rows sees them.
  void attend(int block, int64_t at, int begin, int end) const {
    const int first = block * kTileRows16;
    const int last = first + kTileRows16 < work.num_rows() ? first + kTileRows16 : work.num_rows();
    begin = TileWork::max_of(begin, work.place(first).begin - at);
    end = TileWork::min_of(end, work.place(last - 1).end - at);
    if (begin >= end) return;
    score(block);
    soften(block, at);
    mix(block, begin, end);
  }

  void take_keys(cpu::KeyRange seen) const {
    split_queries();
    for (int64_t at = seen.begin / kRun * kRun; at < seen.end; at += kRun) {
      const int begin = TileWork::max_of(0, seen.begin - at);
      const int end = TileWork::min_of(kRun, seen.end - at);
      pack_keys(at, begin / 16, (end + 15) / 16);
      pack_values(at, begin, end);
      for (int block = 0; block < blocks; ++block) attend(block, at, begin, end);
    }
  }
};

inline void attention_tile_span(const Attention::Problem& p, const Attention::Args& args,
                                const cpu::AttentionTile& tile, cpu::KeyRange keys,
                                const cpu::AttentionState& state, float* scratch) noexcept {
  const TileWork work{p, args, tile, state, scratch};
  work.start();
  if (work.num_rows() <= TileAttention::kFewRows) {
    work.take_keys<Bf16>(keys);
    return;
  }
  const TileScope tiles;
  TileAttention(work).take_keys(keys);
}

constexpr cpu::AttentionSteps kTileAttentionSteps{attention_tile_span, attention_merge,
                                                  attention_finish};
