// SPDX-License-Identifier: Apache-2.0
// Lanes for AVX2: 8 f32 in a register. The same names as in lanes_avx512.inl.h, so that a kernel is written once.
// Included inside a target region; needs avx2, fma.
//
// "first n" operations touch only the first n of the 8 lanes in memory (0 <= n <= 8) and read the others as zero.

struct Lanes {
  using F = __m256;
  using Mask = __m256i;
  static constexpr int kWidth = 8;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float value) { return _mm256_set1_ps(value); }
  static F load(const float* from) { return _mm256_loadu_ps(from); }
  static F load_first(const float* from, int n) { return _mm256_maskload_ps(from, between(0, n)); }
  static void store(float* to, F value) { _mm256_storeu_ps(to, value); }
  static void store_first(float* to, int n, F value) {
    _mm256_maskstore_ps(to, between(0, n), value);
  }

  static F load(const Bf16* from) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static F load_first(const Bf16* from, int n) {
    Bf16 copy[kWidth] = {};
    for (int i = 0; i < n; ++i) copy[i] = from[i];
    return load(copy);
  }
  static void store(Bf16* to, F value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow(value));
  }
  static void store_first(Bf16* to, int n, F value) {
    Bf16 copy[kWidth];
    store(copy, value);
    for (int i = 0; i < n; ++i) to[i] = copy[i];
  }

  /// Asks for the line of an address, to be used soon; any address is allowed.
  /// NOTE: without forced inlining GCC 12 takes this for a function without effect and drops it.
  [[gnu::always_inline]] static void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T1);
  }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }           ///< a * b + c
  static F fma_negated(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  ///< c - a * b
  /// NaN in b is kept, NaN in a is lost (as the instruction has it).
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }

  /// Lanes whose index i has begin <= i < end; both may lie outside [0, 8].
  static Mask between(int begin, int end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
  }
  /// a where the mask is set, else b.
  static F select(Mask mask, F a, F b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask)); }

  /// Bit i is set when lane i of both is the same number.
  static uint32_t equal(F a, F b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }

  static float sum(F v) {
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(F v) {
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  /// e^x, relative error below 3e-7; NaN stays NaN, below -87.3 gives 0 (f32's smallest normal numbers).
  /// x = n ln 2 + r with n whole; e^r is a polynomial of degree 6 (Chebyshev nodes, |r| <= ln 2 / 2, error 1e-8).
  static F exp(F x) {
    const F tiny = _mm256_cmp_ps(x, set(-87.33f), _CMP_LT_OQ);
    x = min(set(88.37f), max(set(-87.33f), x));
    const F n =
        _mm256_round_ps(mul(x, set(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F r = fma_negated(n, set(-2.12194440e-4f), fma_negated(n, set(0.693359375f), x));
    F p = fma(set(1.39261761e-3f), r, set(8.36317302e-3f));
    p = fma(p, r, set(4.16665547e-2f));
    p = fma(p, r, set(0.16666577f));
    p = fma(p, r, set(0.5f));
    p = fma(mul(p, r), r, add(r, set(1.0f)));
    const __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(tiny, mul(p, _mm256_castsi256_ps(power)));
  }
  /// x / (1 + e^-x)
  static F silu(F x) { return div(x, add(set(1.0f), exp(sub(zero(), x)))); }

  /// bf16 to f32 is exact.
  static F widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  /// Rounds to nearest even as to_bf16() does.
  static __m128i narrow(F value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
};
