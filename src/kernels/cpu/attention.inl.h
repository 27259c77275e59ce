// SPDX-License-Identifier: Apache-2.0
// Paged attention, written once over Lanes.
//
// A task is one kv head of one sequence and a tile of its tokens; the tokens' queries of that head's group are the rows.
// Keys are visited in runs of one register (kRun), ascending, with the online softmax; a run's keys and values are
// widened once into scratch and shared by all rows. Keys lie transposed in the cache, so a run's scores are one register
// and cost one multiply-add per head value and row. A row's arithmetic depends neither on the other rows of its tile
// (fully masked runs change no bit: they scale by 1 and add 0) nor on the thread.

struct AttentionTask {
  static constexpr int kRun = Lanes::kWidth;

  const Attention::Problem& p;
  const Attention::Args& args;
  int sequence, group_head;      // b, g
  int64_t first_token, tokens;   // within the sequence
  float* scratch;

  int group() const { return p.heads / p.kv_heads; }
  int rows() const { return static_cast<int>(tokens) * group(); }
  int64_t head() const { return cpu::padded_head(p); }
  float* keys() const { return scratch; }
  float* values() const { return keys() + head() * cpu::kMaxRun; }
  float* outputs() const { return values() + head() * cpu::kMaxRun; }
  float* scores() const { return outputs() + cpu::tile_rows(p) * head(); }
  float* highest() const { return scores() + cpu::tile_rows(p) * cpu::kMaxRun; }
  float* total() const { return highest() + cpu::tile_rows(p); }

  int64_t position(int row) const {
    return args.context_len[sequence] + first_token + row / group();
  }
  int64_t token(int row) const {
    return args.seq_offset[sequence] + first_token + row / group();
  }
  int64_t query_at(int row) const {
    const int64_t h = int64_t{group_head} * group() + row % group();
    return (token(row) * p.heads + h) * p.head_dim;
  }

  // Widens the keys and values of positions [at, at + kRun); what lies at or beyond `end` is not the sequence's and may
  // be anything, so it reads as zero.
  template <class T>
  void load_run(int64_t at, int64_t end) const {
    const int32_t* table = args.block_table + int64_t{sequence} * args.max_blocks;
    const int64_t block = table[at / p.block_tokens], offset = at % p.block_tokens;
    const int64_t base = (block * p.kv_heads + group_head) * p.block_tokens * p.head_dim;
    const T* k = static_cast<const T*>(args.k_cache) + base + offset;
    const T* v = static_cast<const T*>(args.v_cache) + base + offset * p.head_dim;
    const int valid = end - at < kRun ? static_cast<int>(end - at) : kRun;
    for (int64_t z = 0; z < p.head_dim; ++z) {
      Lanes::store(keys() + z * kRun, valid == kRun ? Lanes::load(k + z * p.block_tokens)
                                                    : Lanes::load_first(k + z * p.block_tokens, valid));
    }
    for (int j = 0; j < kRun; ++j) load_value(v + j * p.head_dim, j < valid, values() + j * head());
  }
  template <class T>
  void load_value(const T* from, bool valid, float* to) const {
    for (int64_t z = 0; z < head(); z += kRun) {
      const int64_t left = valid && z < p.head_dim ? p.head_dim - z : 0;
      Lanes::store(to + z, left >= kRun ? Lanes::load(from + z)
                                        : Lanes::load_first(from + z, static_cast<int>(left)));
    }
  }

  // Scores of kCount rows against the run at `at`, scaled and masked.
  template <int kCount>
  void score(int row, int64_t at) const {
    const float* q[kCount];
    Lanes::F sum[kCount];
    for (int i = 0; i < kCount; ++i) {
      q[i] = args.q + query_at(row + i);
      sum[i] = Lanes::zero();
    }
    for (int64_t z = 0; z < p.head_dim; ++z) {
      const Lanes::F key = Lanes::load(keys() + z * kRun);
      for (int i = 0; i < kCount; ++i) sum[i] = Lanes::fma(Lanes::set(q[i][z]), key, sum[i]);
    }
    for (int i = 0; i < kCount; ++i) {
      const int64_t here = position(row + i);
      const int64_t first = p.window > 0 ? here - p.window + 1 : 0;
      const Lanes::F scaled = Lanes::mul(sum[i], Lanes::set(p.scale));
      const auto seen = Lanes::between(clamp_lane(first - at), clamp_lane(here + 1 - at));
      Lanes::store(scores() + (row + i) * kRun,
                   Lanes::select(seen, scaled, Lanes::set(-__builtin_inff())));
    }
  }
  static int clamp_lane(int64_t lane) {
    return lane < 0 ? 0 : lane > kRun ? kRun : static_cast<int>(lane);
  }

  // The online softmax of one row: probabilities into scores(), the factor of what was summed before returned.
  float soften(int row) const {
    float* at = scores() + row * kRun;
    const Lanes::F s = Lanes::load(at);
    const float run_highest = Lanes::largest(s), before = highest()[row];
    const float now = run_highest > before ? run_highest : before;
    const Lanes::F probability = Lanes::exp(Lanes::sub(s, Lanes::set(now)));
    Lanes::store(at, probability);
    float factor[kRun];
    Lanes::store(factor, Lanes::exp(Lanes::set(before - now)));
    highest()[row] = now;
    total()[row] = total()[row] * factor[0] + Lanes::sum(probability);
    return factor[0];
  }

  // outputs = factor * outputs + probability * values for kRows rows and kColumns registers from column z.
  template <int kRows, int kColumns>
  void mix(int row, int64_t z, const float* factor) const {
    Lanes::F sum[kRows][kColumns];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) {
        sum[r][c] = Lanes::mul(Lanes::set(factor[r]),
                               Lanes::load(outputs() + (row + r) * head() + z + c * kRun));
      }
    }
    for (int j = 0; j < kRun; ++j) {
      const float* v = values() + j * head() + z;
      for (int c = 0; c < kColumns; ++c) {
        const Lanes::F value = Lanes::load(v + c * kRun);
        for (int r = 0; r < kRows; ++r) {
          const Lanes::F weight = Lanes::set(scores()[(row + r) * kRun + j]);
          sum[r][c] = Lanes::fma(weight, value, sum[r][c]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) {
        Lanes::store(outputs() + (row + r) * head() + z + c * kRun, sum[r][c]);
      }
    }
  }
  template <int kRows>
  void mix_rows(int row) const {
    float factor[kRows];
    for (int r = 0; r < kRows; ++r) factor[r] = soften(row + r);
    int64_t z = 0;
    for (; z + 4 * kRun <= head(); z += 4 * kRun) mix<kRows, 4>(row, z, factor);
    for (; z < head(); z += kRun) mix<kRows, 1>(row, z, factor);
  }

  template <class T>
  void run_type() const {
    const int count = rows();
    for (int r = 0; r < count; ++r) {
      highest()[r] = -1e30f;  // finite, so that a row whose runs are all masked yet subtracts to no NaN
      total()[r] = 0;
      for (int64_t z = 0; z < head(); z += kRun) {
        Lanes::store(outputs() + r * head() + z, Lanes::zero());
      }
    }
    const int64_t last = position(count - 1) + 1;  // keys [first, last) are seen by some row
    const int64_t cached = args.context_len[sequence] + args.seq_offset[sequence + 1] -
                           args.seq_offset[sequence];
    const int64_t seen = p.window > 0 ? position(0) - p.window + 1 : 0;
    for (int64_t at = seen > 0 ? seen / kRun * kRun : 0; at < last; at += kRun) {
      load_run<T>(at, cached);
      int r = 0;
      for (; r + 8 <= count; r += 8) score<8>(r, at);
      for (; r + 2 <= count; r += 2) score<2>(r, at);
      for (; r < count; ++r) score<1>(r, at);
      for (r = 0; r + 2 <= count; r += 2) mix_rows<2>(r);
      for (; r < count; ++r) mix_rows<1>(r);
    }
    for (int r = 0; r < count; ++r) finish(r);
  }
  void finish(int row) const {
    float* to = args.out + query_at(row);
    const Lanes::F scale = Lanes::set(1 / total()[row]);
    for (int64_t z = 0; z < p.head_dim; z += kRun) {
      const int64_t left = p.head_dim - z;
      const int n = left < kRun ? static_cast<int>(left) : kRun;
      const Lanes::F sum = Lanes::load(outputs() + row * head() + z);
      Lanes::store_first(to + z, n, Lanes::mul(sum, scale));
    }
  }
  void run() const {
    if (p.cache == DType::f32) {
      run_type<float>();
    } else {
      run_type<Bf16>();
    }
  }
};

// Tasks in the order of sequence, tile (the last, with the most keys, first) and kv head.
inline void attention_all(const Attention::Problem& p, const Attention::Args& args,
                          std::span<std::byte> workspace, const Stream& stream) {
  const int64_t tile = cpu::tile_tokens(p);
  int64_t tasks = 0;
  for (int b = 0; b < args.sequences; ++b) {
    tasks += (args.seq_offset[b + 1] - args.seq_offset[b] + tile - 1) / tile * p.kv_heads;
  }
  auto* scratch = reinterpret_cast<float*>(workspace.data());
  const auto run_task = [&](int64_t index, int thread) {
    int b = 0;
    int64_t tiles = 0;
    for (;; ++b) {
      tiles = (args.seq_offset[b + 1] - args.seq_offset[b] + tile - 1) / tile;
      if (index < tiles * p.kv_heads) break;
      index -= tiles * p.kv_heads;
    }
    const int64_t first = (tiles - 1 - index / p.kv_heads) * tile;
    const int64_t length = args.seq_offset[b + 1] - args.seq_offset[b];
    const int64_t count = length - first < tile ? length - first : tile;
    AttentionTask{p,     args,  b, static_cast<int>(index % p.kv_heads),
                  first, count, scratch + thread * cpu::attention_floats(p)}
        .run();
  };
  // A decode step over a short context is not worth waking a thread for.
  int64_t work = 0;
  for (int b = 0; b < args.sequences; ++b) {
    const int64_t length = args.seq_offset[b + 1] - args.seq_offset[b];
    work += length * (args.context_len[b] + length) * p.heads * p.head_dim;
  }
  if (work < kGrainValues * 16) {
    for (int64_t i = 0; i < tasks; ++i) run_task(i, 0);
  } else {
    stream.pool().for_each(tasks, run_task);
  }
}
