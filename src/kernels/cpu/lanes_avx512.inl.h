// SPDX-License-Identifier: Apache-2.0
// Lanes for AVX-512: 16 f32 in a register. The same names as in lanes_avx2.inl.h, so that a kernel is written once.
// Included inside a target region; needs avx512f, avx512bw, avx512vl, avx512dq.
//
// "first n" operations touch only the first n of the 16 lanes in memory (0 <= n <= 16) and read the others as zero.

struct Lanes {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float value) { return _mm512_set1_ps(value); }
  static F load(const float* from) { return _mm512_loadu_ps(from); }
  static F load_first(const float* from, int n) {
    return _mm512_maskz_loadu_ps(first_mask(n), from);
  }
  static void store(float* to, F value) { _mm512_storeu_ps(to, value); }
  /// Past the caches, to an aligned address; the end of the task needs an _mm_sfence().
  static void stream(float* to, F value) { _mm512_stream_ps(to, value); }
  static void store_first(float* to, int n, F value) {
    _mm512_mask_storeu_ps(to, first_mask(n), value);
  }

  static F load(const Bf16* from) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static F load_first(const Bf16* from, int n) {
    return widen(_mm256_maskz_loadu_epi16(first_mask(n), from));
  }
  static void store(Bf16* to, F value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow(value));
  }
  static void store_first(Bf16* to, int n, F value) {
    _mm256_mask_storeu_epi16(to, first_mask(n), narrow(value));
  }

  /// Asks for the line of an address, to be used soon; any address is allowed.
  /// NOTE: without forced inlining GCC 12 takes this for a function without effect and drops it.
  [[gnu::always_inline]] static void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T1);
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }           ///< a * b + c
  static F fma_negated(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  ///< c - a * b
  /// NaN in b is kept, NaN in a is lost (as the instruction has it).
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }

  /// Lanes whose index i has begin <= i < end; both may lie outside [0, 16].
  static Mask between(int begin, int end) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)),
                                        lane, _mm512_set1_epi32(end));
  }
  /// a where the mask is set, else b.
  static F select(Mask mask, F a, F b) { return _mm512_mask_blend_ps(mask, b, a); }

  /// Bit i is set when lane i of both is the same number.
  static uint32_t equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }

  static float sum(F v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 two = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(F v) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 two = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  /// e^x, relative error below 3e-7; NaN stays NaN, below -87.3 gives 0 (f32's smallest normal numbers: a result below
  /// them would cost Intel's cores some hundred cycles of microcode, and masked scores are all of that kind).
  /// x = n ln 2 + r with n whole; e^r is a polynomial of degree 6 (Chebyshev nodes, |r| <= ln 2 / 2, error 1e-8).
  static F exp(F x) {
    const Mask normal = _mm512_cmp_ps_mask(x, set(-87.33f), _CMP_NLT_UQ);
    x = min(set(89.0f), max(set(-87.33f), x));
    const F n = _mm512_roundscale_ps(mul(x, set(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    const F r = fma_negated(n, set(-2.12194440e-4f), fma_negated(n, set(0.693359375f), x));
    F p = fma(set(1.39261761e-3f), r, set(8.36317302e-3f));
    p = fma(p, r, set(4.16665547e-2f));
    p = fma(p, r, set(0.16666577f));
    p = fma(p, r, set(0.5f));
    p = fma(mul(p, r), r, add(r, set(1.0f)));
    return _mm512_maskz_scalef_ps(normal, p, n);
  }
  /// x / (1 + e^-x)
  static F silu(F x) { return div(x, add(set(1.0f), exp(sub(zero(), x)))); }

  /// bf16 to f32 is exact.
  static F widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  /// Rounds to nearest even as to_bf16() does. The bf16 instruction is not used: it flushes subnormal numbers.
  static __m256i narrow(F value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const Mask nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
  }

 private:
  static Mask first_mask(int n) { return static_cast<Mask>((1u << n) - 1u); }
};
