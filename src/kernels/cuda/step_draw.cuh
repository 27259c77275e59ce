// SPDX-License-Identifier: Apache-2.0
// One block draws a token from one row of logits: by the order of tokens from all of them, or, with top-k or top-p, from a sorted
// list of the best. Sums are f64 in an order that follows from the vocabulary's size alone.
// Source: Fan et al. 2018, arXiv 1805.04833 (top-k); Holtzman et al. 2019, arXiv 1904.09751 (top-p); Nguyen et al. 2024,
// arXiv 2407.01082 (min-p); Salmon et al. 2011 (Philox 4x32-10); Batcher 1968 (bitonic sort).
#pragma once
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/step_sample.h"

namespace switchyard::cuda {

inline constexpr int kDrawThreads = 1024, kDrawWarps = kDrawThreads / 32;
inline constexpr int kListed = 2048;    // room for the best and some more
inline constexpr int kNucleus = 512;    // best tokens that top-p looks at
inline constexpr int kSegments = 1024;  // most parts of a row that are summed on their own
inline constexpr int kThresholds = 4;   // counted in one pass

struct DrawShared {
  unsigned long long key[kListed];
  double sum[kSegments];  // of a segment; or up to and with an entry of the list
  double warp[kDrawWarps];
  int count[kDrawWarps][kThresholds];
  int used, found;
};

/// Better is larger: the higher logit, and of equal ones the lower token.
__device__ __forceinline__ unsigned long long sort_key(float logit, int32_t token) {
  return static_cast<unsigned long long>(order_key(logit)) << 32 | ~static_cast<uint32_t>(token);
}

/// A logit's probability as a multiple of the likeliest token's; zero where min-p drops it.
struct Weigher {
  double largest, inverse_temperature, least;

  __device__ Weigher(const SampleRow& row, float largest_logit)
      : largest(static_cast<double>(largest_logit)),
        inverse_temperature(1.0 / static_cast<double>(row.temperature)),
        least(largest + row.log_min_p / inverse_temperature) {}
  __device__ float operator()(float logit) const {
    constexpr double kLeast = -200;  // below it, the exponential is zero as a float
    const double power = (static_cast<double>(logit) - largest) * inverse_temperature;
    return expf(static_cast<float>(fmax(power, kLeast)));
  }
  __device__ float filtered(float logit) const {
    return static_cast<double>(logit) >= least ? (*this)(logit) : 0.0f;
  }
};

__device__ inline double uniform(const SampleRow& row) {
  const uint4 words =
      philox(make_uint4(static_cast<uint32_t>(row.position),
                        static_cast<uint32_t>(row.position >> 32), 0, 0),
             make_uint2(static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)));
  return static_cast<double>((uint64_t{words.x} << 21) ^ (words.y >> 11)) * 0x1p-53;
}

__device__ inline double warp_total(double v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}
__device__ inline double warp_through(double v) {  // up to and with this lane
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const double lower = __shfl_up_sync(kAllLanes, v, offset);
    if (static_cast<int>(threadIdx.x) % 32 >= offset) v += lower;
  }
  return v;
}

// ---- all tokens, in their order

// The token of a segment where the sum, `before` at its begin, first exceeds `left`; else its last token of any weight. By one
// warp.
__device__ inline int walk_segment(const Weigher& weigh, const float* logits, int64_t begin,
                                   int64_t end, double before, double left) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int token = 0;
  for (int64_t first = begin; first < end; first += 32) {
    const double weight =
        first + lane < end ? static_cast<double>(weigh.filtered(logits[first + lane])) : 0.0;
    const double through = before + warp_through(weight);
    const unsigned over = __ballot_sync(kAllLanes, weight > 0 && through > left);
    if (over != 0) return static_cast<int>(first) + __ffs(static_cast<int>(over)) - 1;
    const unsigned some = __ballot_sync(kAllLanes, weight > 0);
    if (some != 0) token = static_cast<int>(first) + 31 - __clz(static_cast<int>(some));
    before = __shfl_sync(kAllLanes, through, 31);
  }
  return token;
}

__device__ inline int draw_all(const SampleRow& row, const Weigher& weigh, const float* logits,
                               int64_t vocab, DrawShared& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t length = (vocab + kSegments - 1) / kSegments;
  const int segments = static_cast<int>((vocab + length - 1) / length);
  for (int i = warp; i < segments; i += kDrawWarps) {
    const int64_t end = min(vocab, (i + 1) * length);
    double sum = 0;
    for (int64_t at = i * length + lane; at < end; at += 32) {
      sum += static_cast<double>(weigh.filtered(logits[at]));
    }
    sum = warp_total(sum);
    if (lane == 0) s.sum[i] = sum;
  }
  __syncthreads();
  if (warp != 0) return 0;
  double total = 0;
  for (int i = 0; i < segments; ++i) total += s.sum[i];
  const double left = uniform(row) * total;
  double before = 0, last_before = 0;
  int last = 0;  // of any weight, should rounding leave a rest
  for (int i = 0; i < segments; ++i) {
    if (s.sum[i] <= 0) continue;
    last = i;
    last_before = before;
    before += s.sum[i];
    if (before > left) break;
  }
  return walk_segment(weigh, logits, last * length, min(vocab, (last + 1) * length), last_before,
                      left);
}

// ---- the best tokens, sorted

__device__ inline double total_weight(const Weigher& weigh, const float* logits, int64_t vocab,
                                      DrawShared& s) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < vocab; i += kDrawThreads) {
    sum += static_cast<double>(weigh(logits[i]));
  }
  sum = warp_total(sum);
  if (threadIdx.x % 32 == 0) s.warp[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = warp_total(s.warp[threadIdx.x % 32]);
  __syncthreads();
  return sum;
}

// How many logits have at least each of these keys; the same in all threads.
__device__ inline void count_at_least(const uint32_t (&least)[kThresholds], const float* logits,
                                      int64_t vocab, int (&count)[kThresholds], DrawShared& s) {
#pragma unroll
  for (int j = 0; j < kThresholds; ++j) count[j] = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vocab; i += kDrawThreads) {
    const uint32_t key = order_key(logits[i]);
#pragma unroll
    for (int j = 0; j < kThresholds; ++j) count[j] += key >= least[j] ? 1 : 0;
  }
#pragma unroll
  for (int j = 0; j < kThresholds; ++j) {
    const int warp = __reduce_add_sync(kAllLanes, count[j]);
    if (threadIdx.x % 32 == 0) s.count[threadIdx.x / 32][j] = warp;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kThresholds; ++j) {
    count[j] = __reduce_add_sync(kAllLanes, s.count[threadIdx.x % 32][j]);
  }
  __syncthreads();
}

// A key that at least `want` logits reach and at most kListed; 0 when ties leave none. Fewer than `want` only when that is all
// above minus infinity.
__device__ inline uint32_t find_threshold(int want, uint32_t largest, const float* logits,
                                          int64_t vocab, DrawShared& s) {
  constexpr uint32_t kLowest = 0x00800000;  // of the lowest finite float; minus infinity is below
  constexpr int kPasses = 24, kByValue = 6;
  uint32_t low = kLowest,
           high = largest + 1;  // too many from low on (perhaps), too few from high on
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t least[kThresholds];
    int count[kThresholds];
    const float top = key_value(high - 1), bottom = key_value(low);
#pragma unroll
    for (int j = 0; j < kThresholds; ++j) {  // falling
      const float part = static_cast<float>(j + 1) / (kThresholds + 1);
      if (pass == 0) {
        least[j] = order_key(top - 0.5f * static_cast<float>(1 << (2 * j)));  // 0.5, 2, 8, 32 below
      } else if (pass < kByValue) {
        least[j] = order_key(top - (top - bottom) * part);
      } else {
        least[j] = high - 1 - static_cast<uint32_t>(static_cast<float>(high - 1 - low) * part);
      }
      if (pass > 0 && pass + 1 == kByValue && j + 1 == kThresholds) least[j] = low;
      least[j] = max(low, min(high - 1, least[j]));
    }
    count_at_least(least, logits, vocab, count, s);
#pragma unroll
    for (int j = 0; j < kThresholds; ++j) {
      if (count[j] >= want && count[j] <= kListed) return least[j];
      if (count[j] < want && least[j] == kLowest) return kLowest;  // that is all there is
    }
#pragma unroll
    for (int j = kThresholds - 1; j >= 0; --j) {
      if (count[j] < want) high = min(high, least[j]);
    }
#pragma unroll
    for (int j = 0; j < kThresholds; ++j) {
      if (count[j] > kListed) low = max(low, least[j]);
    }
    if (high <= low + 1) return low == kLowest && high == kLowest ? kLowest : 0;
  }
  return 0;
}

__device__ inline void sort_falling(DrawShared& s) {
  for (int size = 2; size <= kListed; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < kListed / 2; i += kDrawThreads) {
        const int a = i / stride * stride * 2 + i % stride, b = a + stride;
        const bool falling = (a & size) == 0;
        const unsigned long long x = s.key[a], y = s.key[b];
        if ((x < y) == falling) {
          s.key[a] = y;
          s.key[b] = x;
        }
      }
    }
  }
  __syncthreads();
}

// The tokens of at least this key, best first; says how many.
__device__ inline int list_best(uint32_t least, const float* logits, int64_t vocab, DrawShared& s) {
  for (int i = threadIdx.x; i < kListed; i += kDrawThreads) s.key[i] = 0;
  if (threadIdx.x == 0) s.used = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < vocab; i += kDrawThreads) {
    if (order_key(logits[i]) < least) continue;
    const int at = atomicAdd(&s.used, 1);  // any order: they are sorted next
    if (at < kListed) s.key[at] = sort_key(logits[i], static_cast<int32_t>(i));
  }
  __syncthreads();
  sort_falling(s);
  return min(s.used, kListed);
}

// s.sum[i]: the weights of the best i + 1 of `count` entries.
__device__ inline void sum_through(double weight, DrawShared& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const double through = warp_through(weight);
  if (threadIdx.x % 32 == 31) s.warp[warp] = through;
  __syncthreads();
  double before = 0;
  for (int i = 0; i < warp; ++i) before += s.warp[i];
  s.sum[threadIdx.x] = before + through;
  __syncthreads();
}

// The first thread for which `is` holds, or kDrawThreads.
__device__ inline int first_where(bool is, DrawShared& s) {
  if (threadIdx.x == 0) s.found = kDrawThreads;
  __syncthreads();
  if (is) atomicMin(&s.found, static_cast<int>(threadIdx.x));
  __syncthreads();
  const int found = s.found;
  __syncthreads();
  return found;
}

__device__ inline int draw_best(const SampleRow& row, const Weigher& weigh, const float* logits,
                                int64_t vocab, uint32_t largest, DrawShared& s) {
  const bool by_count = row.top_k > 0 && row.top_k < vocab;
  const int want = by_count ? row.top_k : static_cast<int>(min(vocab, int64_t{kNucleus}));
  if (want > Sample::kMaxBest) return Sample::kUndecided;
  const double all = !by_count && row.top_p < 1.0f ? total_weight(weigh, logits, vocab, s) : 0.0;
  const uint32_t least = find_threshold(want, largest, logits, vocab, s);
  if (least == 0) return Sample::kUndecided;
  const int own = static_cast<int>(threadIdx.x);
  int kept = min(list_best(least, logits, vocab, s), want);
  if (kept == 0) return 0;  // all tokens are masked
  const float logit = key_value(static_cast<uint32_t>(s.key[own] >> 32));
  const double weight = own < kept ? static_cast<double>(weigh(logit)) : 0.0;
  sum_through(weight, s);
  if (row.top_p < 1.0f) {
    const double mass = static_cast<double>(row.top_p) * (by_count ? s.sum[kept - 1] : all);
    const int last = first_where(own < kept && s.sum[own] >= mass, s);
    if (last < kDrawThreads) {
      kept = last + 1;
    } else if (!by_count) {
      return Sample::kUndecided;
    }
  }
  kept = min(kept, first_where(static_cast<double>(logit) < weigh.least, s));
  const double left = uniform(row) * s.sum[kept - 1];
  int at = first_where(own < kept && weight > 0 && s.sum[own] > left, s);
  if (at == kDrawThreads) at = max(0, first_where(own >= kept || weight <= 0, s) - 1);
  return static_cast<int>(~static_cast<uint32_t>(s.key[at]));
}

}  // namespace switchyard::cuda
