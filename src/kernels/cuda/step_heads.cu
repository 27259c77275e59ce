// SPDX-License-Identifier: Apache-2.0
// Heads between the q, k, v product and attention: norm, clip, rope, and the store to q and the caches. A block has a token, or one
// warp a head of one token. Bound by memory at many tokens and by latency at few.
// Source: Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/step_heads.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kHeadWarps = 4;
constexpr int kHeadsEach = 4;    // of a warp that has its token's heads in registers
constexpr int kMostHeads = 128;  // of a token, q, k and v, that a block holds in registers
constexpr int kAheadHeads = 48;  // with those of another token, twice on a multiprocessor

template <class In>
__device__ __forceinline__ const In* products_of(const PrepareHeads& a);
template <>
__device__ __forceinline__ const float* products_of<float>(const PrepareHeads& a) {
  return a.qkv;
}
template <>
__device__ __forceinline__ const bf16* products_of<bf16>(const PrepareHeads& a) {
  return static_cast<const bf16*>(a.qkv_bf16);
}

// 1 / rms of `width` values, by one warp.
template <class In>
__device__ float warp_rms_scale(const In* x, int64_t width, float eps) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) sum += to_f32(x[i]) * to_f32(x[i]);
  return rsqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// One warp for one head of one token: q heads, then k heads, then v heads. Any width, any rotary part.
template <class T, class In>
__global__ void __launch_bounds__(kHeadWarps* kWarp) prepare_kernel(PrepareHeads a) {
  let_next_begin();
  wait_for_previous();
  const int64_t t = blockIdx.y;
  const int lane = threadIdx.x % kWarp, head = blockIdx.x * kHeadWarps + threadIdx.x / kWarp;
  const int total = a.heads + 2 * a.kv_heads, width = a.head_dim;
  if (head >= total) return;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  const In* row = products_of<In>(a) + t * total * width;
  const In* x = row + int64_t{head} * width;
  const float* weight = nullptr;
  float scale = 1;
  if (!is_v && a.norm == QkNormKind::per_head) {
    scale = warp_rms_scale(x, width, a.eps);
    weight = is_q ? a.q_norm : a.k_norm;
  } else if (!is_v && a.norm == QkNormKind::full_width) {
    const int64_t first = is_q ? 0 : int64_t{a.heads} * width;
    scale = warp_rms_scale(row + first, int64_t{is_q ? a.heads : a.kv_heads} * width, a.eps);
    weight = is_q ? a.q_norm + int64_t{head} * width : a.k_norm + int64_t{head - a.heads} * width;
  }
  T* to = nullptr;
  if (is_q) {
    to = static_cast<T*>(a.q) + (t * a.heads + head) * width;
  } else {
    const int64_t block = a.slot[t] / a.block_tokens, offset = a.slot[t] % a.block_tokens;
    const int g = is_v ? head - a.heads - a.kv_heads : head - a.heads;
    to = static_cast<T*>(is_v ? a.v_cache : a.k_cache) +
         ((block * a.kv_heads + g) * a.block_tokens + offset) * width;
  }
  const auto value = [&](int i) {
    float v = to_f32(x[i]) * scale;
    if (weight != nullptr) v *= weight[i];
    return a.clip > 0 ? fminf(fmaxf(v, -a.clip), a.clip) : v;
  };
  const int half = is_v ? 0 : a.rotary_dim / 2;
  const int64_t angle = half > 0 ? int64_t{a.rope_row[t]} * half : 0;
  for (int i = lane; i < half; i += kWarp) {
    const float low = value(i), high = value(i + half);
    const float c = a.cos[angle + i], s = a.sin[angle + i];
    to[i] = from_f32<T>(low * c - high * s);
    to[i + half] = from_f32<T>(high * c + low * s);
  }
  for (int i = 2 * half + lane; i < width; i += kWarp) to[i] = from_f32<T>(value(i));
}

// 1 / rms over heads [first, end), from what each lane holds of each head's squares.
__device__ float heads_scale(const float (*squares)[kWarp], int first, int end, int width,
                             float eps) {
  float sum = 0;
#pragma unroll 4
  for (int head = first; head < end; ++head) sum += squares[head][threadIdx.x % kWarp];
  return rsqrtf(warp_sum(sum) / static_cast<float>((end - first) * width) + eps);
}

// A warp's heads, and what they have in all tokens: weights of their norms. A lane holds kPairs = Z / 64 neighbours and their partners
// half a head away.
template <int kPairs>
struct WarpHeads {
  static constexpr int kHalf = kPairs * kWarp, kWidth = 2 * kHalf;
  int lane, first, begin, turned, count;
  bool full;
  Pairs<kPairs> weight[kHeadsEach] = {};

  __device__ __forceinline__ explicit WarpHeads(const PrepareHeads& a)
      : lane(static_cast<int>(threadIdx.x) % kWarp),
        first(lane * kPairs),
        begin(static_cast<int>(threadIdx.x) / kWarp * kHeadsEach),
        turned(a.heads + a.kv_heads),
        count(min(kHeadsEach, turned + a.kv_heads - begin)),
        full(a.norm == QkNormKind::full_width) {
#pragma unroll
    for (int i = 0; i < kHeadsEach; ++i) {
      const int head = begin + i;
      if (a.norm == QkNormKind::none || head >= turned) break;
      const bool is_q = head < a.heads;
      const int own = full ? is_q ? head : head - a.heads : 0;
      weight[i] = load_pairs<kPairs>((is_q ? a.q_norm : a.k_norm) + own * kWidth + first);
    }
  }
};

// What a warp reads of a token.
template <int kPairs, class In>
struct TokenHeads {
  int64_t slot = 0;
  Run<kPairs, float> cos = {}, sin = {};
  Run<kPairs, In> low[kHeadsEach] = {}, high[kHeadsEach] = {};

  /// What does not depend on qkv; `rope_row` is the token's.
  __device__ __forceinline__ void ask_turn(const PrepareHeads& a, const WarpHeads<kPairs>& own,
                                           int64_t t, int rope_row) {
    slot = a.slot[t];
    if (own.begin >= own.turned) return;
    const int64_t angle = int64_t{rope_row} * own.kHalf + own.first;
    cos.load(a.cos + angle);
    sin.load(a.sin + angle);
  }
  __device__ __forceinline__ void ask_values(const PrepareHeads& a, const WarpHeads<kPairs>& own,
                                             int64_t t) {
    const In* row =
        products_of<In>(a) + (t * (own.turned + a.kv_heads) + own.begin) * own.kWidth + own.first;
#pragma unroll
    for (int i = 0; i < kHeadsEach; ++i) {
      if (i >= own.count) break;
      low[i].load(row + i * own.kWidth);
      high[i].load(row + i * own.kWidth + own.kHalf);
    }
  }
};

// Norm, turn and store of a warp's heads of token t. `squares` [heads][lane] is for norms over all heads.
template <int kPairs, class In>
__device__ __forceinline__ void finish_token(const PrepareHeads& a, const WarpHeads<kPairs>& own,
                                             const TokenHeads<kPairs, In>& token, int64_t t,
                                             float (*squares)[kWarp]) {
  constexpr int kHalf = kPairs * kWarp, kWidth = 2 * kHalf;
  Pairs<kPairs> x[kHeadsEach], turn;
#pragma unroll
  for (int i = 0; i < kHeadsEach; ++i) {
    token.low[i].values(x[i].low);
    token.high[i].values(x[i].high);
  }
  token.cos.values(turn.low);
  token.sin.values(turn.high);
  float q_scale = 1, k_scale = 1;
  if (own.full) {
#pragma unroll
    for (int i = 0; i < kHeadsEach; ++i) {
      if (i < own.count) squares[own.begin + i][own.lane] = squares_of(x[i]);
    }
    __syncthreads();
    if (own.begin < a.heads) q_scale = heads_scale(squares, 0, a.heads, kWidth, a.eps);
    if (own.begin + own.count > a.heads)
      k_scale = heads_scale(squares, a.heads, own.turned, kWidth, a.eps);
  }
  const int64_t block = token.slot / a.block_tokens, offset = token.slot % a.block_tokens;
#pragma unroll
  for (int i = 0; i < kHeadsEach; ++i) {
    const int head = own.begin + i;
    if (i >= own.count) break;
    const bool is_q = head < a.heads, is_v = head >= own.turned;
    float scale = is_q ? q_scale : k_scale;
    if (a.norm == QkNormKind::per_head) {
      scale = rsqrtf(warp_sum(squares_of(x[i])) / kWidth + a.eps);
    }
    finish_head(a, x[i], scale, own.weight[i], turn, is_v);
    bf16* to = static_cast<bf16*>(a.q) + (t * a.heads + head) * kWidth;
    if (!is_q) {
      const int g = is_v ? head - own.turned : head - a.heads;
      to = static_cast<bf16*>(is_v ? a.v_cache : a.k_cache) +
           ((block * a.kv_heads + g) * a.block_tokens + offset) * kWidth;
    }
    store_run<kPairs>(x[i].low, to + own.first);
    store_run<kPairs>(x[i].high, to + kHalf + own.first);
  }
}

// The same for bf16 heads of 64, 128 or 256 values that are turned as a whole: a block has a token and a warp kHeadsEach of its
// heads, all of whose values it asks for at once. What does not depend on qkv is read before the launch before has ended. With up to
// kAheadHeads heads of 64 or 128 values from bf16, a block goes on to further tokens, whose values it asks for before it finishes those at hand.
template <int kPairs, class In, int kMost>
__global__ void __launch_bounds__(kMost / kHeadsEach * kWarp, kMost <= kAheadHeads ? 2 : 1)
    prepare_token_kernel(PrepareHeads a) {
  constexpr bool kGoesOn = kMost <= kAheadHeads;
  __shared__ float squares[kGoesOn ? 2 : 1][kMost][kWarp];  // of tokens in turn
  const WarpHeads<kPairs> own(a);
  const int64_t step = gridDim.x;
  int64_t t = blockIdx.x;
  TokenHeads<kPairs, In> next;
  next.ask_turn(a, own, t, a.rope_row[t]);
  int row_after = kGoesOn && t + step < a.tokens ? a.rope_row[t + step] : 0;
  let_next_begin();
  wait_for_previous();
  next.ask_values(a, own, t);
  if constexpr (!kGoesOn) {
    finish_token(a, own, next, t, squares[0]);
  } else {
    int turn = 0;
#pragma unroll 1
    for (; t < a.tokens; t += step, turn ^= 1) {
      const TokenHeads<kPairs, In> token = next;
      if (t + step < a.tokens) {
        next.ask_turn(a, own, t + step, row_after);
        next.ask_values(a, own, t + step);
        if (t + 2 * step < a.tokens) row_after = a.rope_row[t + 2 * step];
      }
      finish_token(a, own, token, t, squares[turn]);
    }
  }
}

template <int kPairs, class In, int kMost>
void launch_token(const PrepareHeads& args, StreamHandle stream) {
  constexpr int kBlocksEach = 2;  // of a multiprocessor, that go on
  const auto kernel = prepare_token_kernel<kPairs, In, kMost>;
  const unsigned most = static_cast<unsigned>(num_multiprocessors() * kBlocksEach);
  const unsigned blocks = grid_of(args.tokens, 1), heads = args.heads + 2 * args.kv_heads;
  launch_chained(kernel, dim3(kMost <= kAheadHeads && blocks > most ? most : blocks),
                 grid_of(heads, kHeadsEach) * kWarp, 0, stream, args);
}

template <int kPairs, class In>
bool launch_token(const PrepareHeads& args, StreamHandle stream) {
  const int heads = args.heads + 2 * args.kv_heads;
  if constexpr (kPairs < 4 && std::is_same_v<In, bf16>) {
    if (heads <= kAheadHeads) return launch_token<kPairs, In, kAheadHeads>(args, stream), true;
  }
  constexpr int kMost = kPairs < 4 ? kMostHeads : kMostHeads / 2;
  if (heads <= kMost) return launch_token<kPairs, In, kMost>(args, stream), true;
  return false;
}

template <int kPairs>
bool launch_token(const PrepareHeads& args, StreamHandle stream) {
  return args.qkv_bf16 != nullptr ? launch_token<kPairs, bf16>(args, stream)
                                  : launch_token<kPairs, float>(args, stream);
}

bool launch_by_token(const PrepareHeads& args, StreamHandle stream) {
  if (args.dtype != DType::bf16 || args.rotary_dim != args.head_dim) return false;
  return args.head_dim == 64    ? launch_token<1>(args, stream)
         : args.head_dim == 128 ? launch_token<2>(args, stream)
         : args.head_dim == 256 ? launch_token<4>(args, stream)
                                : false;
}

}  // namespace

void prepare_heads(const PrepareHeads& args, StreamHandle stream) noexcept {
  if (args.tokens == 0 || launch_by_token(args, stream)) return;
  const dim3 grid(grid_of(args.heads + 2 * args.kv_heads, kHeadWarps), grid_of(args.tokens, 1));
  launch_chained(args.dtype == DType::f32   ? prepare_kernel<float, float>
                 : args.qkv_bf16 == nullptr ? prepare_kernel<bf16, float>
                                            : prepare_kernel<bf16, bf16>,
                 grid, kHeadWarps * kWarp, 0, stream, args);
}

}  // namespace switchyard::cuda
