// SPDX-License-Identifier: Apache-2.0
// RMS norm and the preparation of q, k, v, written once over Lanes.

// 1 / sqrt(mean of squares + eps); four sums hide the latency of one.
inline float rms_scale(const float* x, int64_t width, float eps) {
  constexpr int kWidth = Lanes::kWidth;
  Lanes::F sum[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= width; i += 4 * kWidth) {
    for (int j = 0; j < 4; ++j) {
      const Lanes::F v = Lanes::load(x + i + j * kWidth);
      sum[j] = Lanes::fma(v, v, sum[j]);
    }
  }
  for (; i < width; i += kWidth) {
    const int64_t left = width - i;
    const Lanes::F v = Lanes::load_first(x + i, left < kWidth ? static_cast<int>(left) : kWidth);
    sum[0] = Lanes::fma(v, v, sum[0]);
  }
  const float total =
      Lanes::sum(Lanes::add(Lanes::add(sum[0], sum[1]), Lanes::add(sum[2], sum[3])));
  return 1.0f / __builtin_sqrtf(total / static_cast<float>(width) + eps);
}

// x += scale * add, in registers of kWidth and a tail.
inline void add_scaled(float* x, const float* add, float scale, int64_t width) {
  constexpr int kWidth = Lanes::kWidth;
  for (int64_t i = 0; i < width; i += kWidth) {
    const int64_t left = width - i;
    const int n = left < kWidth ? static_cast<int>(left) : kWidth;
    const Lanes::F sum =
        Lanes::fma(Lanes::set(scale), Lanes::load_first(add + i, n), Lanes::load_first(x + i, n));
    Lanes::store_first(x + i, n, sum);
  }
}

inline void scale_by(const float* x, float scale, const float* weight, int64_t width, float* y) {
  constexpr int kWidth = Lanes::kWidth;
  for (int64_t i = 0; i < width; i += kWidth) {
    const int64_t left = width - i;
    const int n = left < kWidth ? static_cast<int>(left) : kWidth;
    const Lanes::F v = Lanes::mul(Lanes::load_first(x + i, n), Lanes::set(scale));
    Lanes::store_first(y + i, n, Lanes::mul(v, Lanes::load_first(weight + i, n)));
  }
}

inline void rms_norm_all(const RmsNorm::Problem& problem, const RmsNorm::Args& args,
                         const Stream& stream) {
  const int64_t width = problem.width;
  stream.pool().for_range(
      args.tokens, 1 + kGrainValues / width, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          float* x = args.x + t * width;
          if (args.add != nullptr) add_scaled(x, args.add + t * width, args.add_scale, width);
          if (args.y == nullptr) continue;
          scale_by(x, rms_scale(x, width, problem.eps), args.weight, width, args.y + t * width);
        }
      });
}

// A head on its way: values from the projection, times the norm's scale and weight, clipped.
struct HeadSource {
  const float* from;
  float scale;          // of the norm; 1 without
  const float* weight;  // of the norm, from this head's first value; null without
  float clip;           // 0: none

  Lanes::F load(int64_t i, int n) const {
    Lanes::F v = Lanes::load_first(from + i, n);
    if (weight != nullptr) {
      v = Lanes::mul(Lanes::mul(v, Lanes::set(scale)), Lanes::load_first(weight + i, n));
    }
    // The value is the second operand, so that a NaN survives the clip.
    if (clip > 0) v = Lanes::min(Lanes::set(clip), Lanes::max(Lanes::set(-clip), v));
    return v;
  }
};

// Where a head goes: [Z] f32 in a row (queries), [Z] of a cache type in a row (values), or every P-th (keys).
struct RowSink {
  float* to;
  void store(int64_t i, int n, Lanes::F v) const { Lanes::store_first(to + i, n, v); }
};
template <class T>
struct CacheRowSink {
  T* to;
  void store(int64_t i, int n, Lanes::F v) const { Lanes::store_first(to + i, n, v); }
};
template <class T>
struct CacheColumnSink {
  T* to;
  int64_t stride;
  void store(int64_t i, int n, Lanes::F v) const {
    T values[Lanes::kWidth];
    Lanes::store(values, v);
    for (int j = 0; j < n; ++j) to[(i + j) * stride] = values[j];
  }
};

// Rotates the first `rotary` values of a head in pairs (i, i + rotary / 2) and passes the others through.
template <class Sink>
inline void move_head(const HeadSource& source, int head_dim, int rotary, const float* cos,
                      const float* sin, const Sink& sink) {
  constexpr int kWidth = Lanes::kWidth;
  const int half = rotary / 2;
  for (int i = 0; i < half; i += kWidth) {
    const int n = half - i < kWidth ? half - i : kWidth;
    const Lanes::F a = source.load(i, n), b = source.load(i + half, n);
    const Lanes::F c = Lanes::load_first(cos + i, n), s = Lanes::load_first(sin + i, n);
    sink.store(i, n, Lanes::fma_negated(b, s, Lanes::mul(a, c)));
    sink.store(i + half, n, Lanes::fma(a, s, Lanes::mul(b, c)));
  }
  for (int i = rotary; i < head_dim; i += kWidth) {
    const int n = head_dim - i < kWidth ? head_dim - i : kWidth;
    sink.store(i, n, source.load(i, n));
  }
}

// The source of head h among `heads` that start at x, with whatever norm the problem has.
inline HeadSource head_source(const PrepareQkv::Problem& p, const float* x, int h,
                              const float* weight, float full_scale) {
  const int64_t at = int64_t{h} * p.head_dim;
  HeadSource source{x + at, 1, nullptr, p.clip};
  if (p.norm == QkNorm::per_head) {
    source.scale = rms_scale(x + at, p.head_dim, p.eps);
    source.weight = weight;
  } else if (p.norm == QkNorm::full_width) {
    source.scale = full_scale;
    source.weight = weight + at;
  }
  return source;
}

template <class T>
inline void prepare_token(const PrepareQkv::Problem& p, const PrepareQkv::Args& args, int64_t t) {
  const int64_t q_width = int64_t{p.heads} * p.head_dim,
                kv_width = int64_t{p.kv_heads} * p.head_dim;
  const float *q = args.qkv + t * (q_width + 2 * kv_width), *k = q + q_width, *v = k + kv_width;
  const float *cos = args.cos + t * (p.rotary_dim / 2), *sin = args.sin + t * (p.rotary_dim / 2);
  const bool full = p.norm == QkNorm::full_width;
  const float q_scale = full ? rms_scale(q, q_width, p.eps) : 1;
  const float k_scale = full ? rms_scale(k, kv_width, p.eps) : 1;
  for (int h = 0; h < p.heads; ++h) {
    move_head(head_source(p, q, h, args.q_norm, q_scale), p.head_dim, p.rotary_dim, cos, sin,
              RowSink{args.q + t * q_width + int64_t{h} * p.head_dim});
  }
  const int64_t block = args.slot[t] / p.block_tokens, offset = args.slot[t] % p.block_tokens;
  for (int g = 0; g < p.kv_heads; ++g) {
    const int64_t base = (block * p.kv_heads + g) * p.block_tokens * p.head_dim;
    const CacheColumnSink<T> keys{static_cast<T*>(args.k_cache) + base + offset, p.block_tokens};
    move_head(head_source(p, k, g, args.k_norm, k_scale), p.head_dim, p.rotary_dim, cos, sin, keys);
    const CacheRowSink<T> values{static_cast<T*>(args.v_cache) + base + offset * p.head_dim};
    const HeadSource source{v + int64_t{g} * p.head_dim, 1, nullptr, p.clip};
    move_head(source, p.head_dim, 0, cos, sin, values);
  }
}

inline void prepare_all(const PrepareQkv::Problem& p, const PrepareQkv::Args& args,
                        const Stream& stream) {
  const int64_t width = int64_t{p.heads + 2 * p.kv_heads} * p.head_dim;
  stream.pool().for_range(args.tokens, 1 + kGrainValues / width,
                          [&](int64_t begin, int64_t end, int) {
                            for (int64_t t = begin; t < end; ++t) {
                              if (p.cache == DType::f32) {
                                prepare_token<float>(p, args, t);
                              } else {
                                prepare_token<Bf16>(p, args, t);
                              }
                            }
                          });
}
