// SPDX-License-Identifier: Apache-2.0
// The norm before the experts, the gate's logits and the picks of some hundred tokens on Hopper, in one launch: the residual stream is read
// once.
//
//   logits[t, e] = (sum over k of x[t, k] w[k] gate[e, k]) / rms(x[t]);   rows[t] = rms_norm(x[t]) * w
//   cluster  8 blocks share 32 tokens; block r has the r-th part of D of all of them and of all experts, so that a gate row and a
//            token are read by one block each; 256 inputs at a time
//   factors  x w in two parts of bf16 (high + low, 2^-17 of the factor at most), the gate as split_gate made it: one part where
//            its weights are bf16, else two, and only low * low is left out
//   join     a block sends each of the 8 its sums of that one's 4 tokens, and its squares of all; mbarriers count the bytes, as a barrier of
//            the cluster would wait for a fence of the device. Each adds up in the order of the blocks: a token's bits depend on its row, D
//            and E alone. A warp then makes a token's picks (route_token.cuh).
//   cost     4 T D bytes read, 2 T D written; 64 KiB of the gate for each 32 tokens and block, from the L2
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm); Henry, Tang and Heinecke 2019, arXiv 1904.06376 (bf16 in parts).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/gate_entries.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/route_token.cuh"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kBlocks = 8;  // of a cluster
constexpr int kTokens = 32, kTokenTile = 8;
constexpr int kOwnTokens = kTokens / kBlocks;  // whose sums a block joins
constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kRowThreads = kThreads / kTokens;  // of a token
constexpr int kChunk = 256,
              kGroup = 32;  // inputs: of a turn; that a lane's 16 bytes are a quarter of
constexpr int kGroups = kChunk / kGroup;
constexpr int kRowBytes = kChunk * 2 + 64;  // of a token in shared memory, free of bank conflicts
constexpr int kExpertTile = 16;
constexpr int kMaxTiles = 8, kMaxExperts = 256;
constexpr int kMaxPicks = kWarp;
constexpr int kMaxStride = kMaxExperts + 4;  // of a token's sums

// What a warp works on: kTiles of 16 experts are dealt to the warps first, then tiles of tokens; kPasses times.
template <int kTiles_, int kPasses_>
struct Split {
  static constexpr int kTiles = kTiles_, kPasses = kPasses_;
  static constexpr int kParts = kWarps / kTiles;  // warps that share an expert tile's tokens
  static constexpr int kTokenTiles =
      kTokens / kTokenTile / kParts > 0 ? kTokens / kTokenTile / kParts : 1;
  static constexpr int kPerLane =
      kTiles * kPasses > 4 ? kTiles* kPasses / 2 : 2;  // experts, in scoring
  static constexpr int kPassExperts = kTiles * kExpertTile, kExperts = kPassExperts * kPasses;
  static constexpr int kStride = kExperts + 4;  // of a token's sums
  static constexpr int kPartBytes = kOwnTokens * kStride * 4;
  static constexpr bool kEarly = kPasses == 1;  // the norm's weights; else registers do not suffice
};

struct Shared {
  struct Factors {
    uint8_t gate[kMaxTiles * kExpertTile][kRowBytes];
    uint8_t high[kTokens][kRowBytes], low[kTokens][kRowBytes];
  };
  struct Results {
    float sum[kTokens * kMaxStride];  // [token][experts + 4]
    float logit[kOwnTokens][kMaxExperts];
    float parts[kBlocks][kOwnTokens * kMaxStride];  // of each block for this one's tokens
    int pick[kTokens][kMaxPicks];                   // of the whole cluster; of block 0
  };
  union {
    alignas(16) Factors factors;
    Results results;  // when the products are done
  };
  static_assert(sizeof(Results) <= sizeof(Factors));
  alignas(16) float squares[kTokens];
  alignas(16) float all_squares[kBlocks][kTokens];
  float scale[kTokens];
  int count[kMaxExperts];  // picks of the whole cluster; of block 0
  alignas(8) uint64_t squares_full, parts_full, picks_full;
};

// Shared memory to another block's, whose barrier counts the bytes.
__device__ __forceinline__ void send_to_block(const void* to, const void* from, uint32_t bytes,
                                              const uint64_t* barrier, int block) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(address_in_block(shared_address(to), block)),
      "r"(shared_address(from)), "r"(bytes), "r"(address_in_block(shared_address(barrier), block))
      : "memory");
}
// A value to the first block, whose barrier counts 4 bytes.
__device__ __forceinline__ void store_in_first_block(const int* own, int value,
                                                     const uint64_t* barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(
                   address_in_block(shared_address(own), 0)),
               "r"(value), "r"(address_in_block(shared_address(barrier), 0))
               : "memory");
}

// The inputs [begin, end) of this block; multiples of 32.
struct Slice {
  int64_t begin, end;
  __device__ __forceinline__ explicit Slice(int64_t width) {
    const int64_t each = (width / kGroup + kBlocks - 1) / kBlocks * kGroup;
    begin = min(each * (blockIdx.x % kBlocks), width);
    end = min(begin + each, width);
  }
};

// Gate rows [first, first + rows) and a chunk of inputs into shared memory; zeros where there are none.
__device__ __forceinline__ void load_gate(Shared& s, const bf16* gate, int64_t stride, int first,
                                          int rows, int experts, int64_t k, int64_t end) {
  constexpr int kPieces = kChunk / 8;  // of a row, 16 bytes each
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * kPieces; i += kThreads) {
    const int row = i / kPieces, inside = i % kPieces * 8;
    const bool there = first + row < experts && k + inside < end;
    const bf16* from = there ? gate + (first + row) * stride + k + inside : gate;
    copy_16(shared_address(&s.factors.gate[row][inside * 2]), from, there ? 16 : 0);
  }
  copies_commit();
}

// sum += 16 gate rows times both parts of the tokens, or the high ones alone. A lane has 8 inputs of each 32, of all factors.
template <class SplitT, bool kBoth>
__device__ __forceinline__ void multiply(float (&sum)[SplitT::kTokenTiles][4],
                                         const Shared::Factors& factors, int expert, int token) {
  const int row = threadIdx.x % kWarp / 4, inside = threadIdx.x % 4 * 16;
  const auto piece = [&](const uint8_t* from) { return *reinterpret_cast<const uint4*>(from); };
#pragma unroll 2
  for (int g = 0; g < kGroups; ++g) {
    const int at = g * kGroup * 2 + inside;
    const uint4 a = piece(&factors.gate[expert + row][at]);
    const uint4 b = piece(&factors.gate[expert + row + 8][at]);
#pragma unroll
    for (int n = 0; n < SplitT::kTokenTiles; ++n) {
      const int t = token + n * kTokenTile + row;
      if constexpr (kBoth) {
        const uint4 low = piece(&factors.low[t][at]);
        mma_bf16(sum[n], a.x, b.x, a.y, b.y, low.x, low.y);
        mma_bf16(sum[n], a.z, b.z, a.w, b.w, low.z, low.w);
      }
      const uint4 high = piece(&factors.high[t][at]);
      mma_bf16(sum[n], a.x, b.x, a.y, b.y, high.x, high.y);
      mma_bf16(sum[n], a.z, b.z, a.w, b.w, high.z, high.w);
    }
  }
}

// This thread's share of a chunk of its token: 4 inputs of each 32.
struct RowChunk {
  float4 value[kGroups];
  __device__ __forceinline__ void load(const float* row, int64_t first, int64_t end) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t k = first + g * kGroup + threadIdx.x % kRowThreads * 4;
      value[g] = row != nullptr && k < end ? *reinterpret_cast<const float4*>(row + k)
                                           : make_float4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ float squares() const {
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) sum += squares_of(value[g]);
    return sum;
  }
  __device__ __forceinline__ void weigh(const RowChunk& by) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const float4 v = value[g], w = by.value[g];
      value[g] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    }
  }
  __device__ __forceinline__ void store_parts(Shared& s) const {
    const int token = threadIdx.x / kRowThreads, inside = threadIdx.x % kRowThreads * 8;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const float4 v = value[g];
      const uint2 high = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
      *reinterpret_cast<uint2*>(&s.factors.high[token][g * kGroup * 2 + inside]) = high;
      *reinterpret_cast<uint2*>(&s.factors.low[token][g * kGroup * 2 + inside]) =
          make_uint2(pack_bf16(v.x - low_bf16(high.x), v.y - high_bf16(high.x)),
                     pack_bf16(v.z - low_bf16(high.y), v.w - high_bf16(high.y)));
    }
  }
  // `value` is x w; what is stored are normed rows, in either or both precisions.
  __device__ __forceinline__ void store_normed(const NormRows& a, int64_t t, float scale,
                                               int64_t first, int64_t end) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t k = first + g * kGroup + threadIdx.x % kRowThreads * 4;
      if (k >= end) break;
      const float4 v = value[g];
      const float4 y = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
      const int64_t at = t * a.width + k;
      if (a.y_f32 != nullptr) *reinterpret_cast<float4*>(a.y_f32 + at) = y;
      if (a.y_bf16 != nullptr) {
        *reinterpret_cast<uint2*>(static_cast<bf16*>(a.y_bf16) + at) =
            make_uint2(pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
      }
    }
  }
};

template <class SplitT>
__device__ __forceinline__ void store_sums(
    Shared& s, const float (&sum)[SplitT::kPasses][SplitT::kTokenTiles][4], int expert,
    int first_token) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int pass = 0; pass < SplitT::kPasses; ++pass) {
#pragma unroll
    for (int n = 0; n < SplitT::kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = first_token + n * kTokenTile + lane % 4 * 2 + i % 2;
        const int e = pass * SplitT::kPassExperts + expert + lane / 4 + i / 2 * 8;
        s.results.sum[token * SplitT::kStride + e] = sum[pass][n][i];
      }
    }
  }
}

// All threads: this block's sums and squares to those that join them.
template <class SplitT>
__device__ __forceinline__ void send_parts(Shared& s) {
  const int rank = static_cast<int>(blockIdx.x % kBlocks), to = static_cast<int>(threadIdx.x);
  fence_async_shared();
  __syncthreads();
  if (to >= kBlocks) return;
  send_to_block(s.all_squares[rank], s.squares, sizeof(s.squares), &s.squares_full, to);
  send_to_block(s.results.parts[rank], s.results.sum + to * kOwnTokens * SplitT::kStride,
                SplitT::kPartBytes, &s.parts_full, to);
}

// The logits of this block's own tokens, out of all blocks' sums.
template <class SplitT>
__device__ __forceinline__ void join_logits(Shared& s, const NormGateParts& a,
                                            int64_t first_token) {
  const int own = static_cast<int>(blockIdx.x % kBlocks) * kOwnTokens;
  for (int i = threadIdx.x; i < kOwnTokens * a.num_experts; i += kThreads) {
    const int token = i / a.num_experts, e = i % a.num_experts;
    float sum = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) sum += s.results.parts[b][token * SplitT::kStride + e];
    const float logit = sum * s.scale[own + token];
    s.results.logit[token][e] = logit;
    if (first_token + own + token < a.norm.tokens) {
      a.logits[(first_token + own + token) * a.num_experts + e] = logit;
    }
  }
}

// The first warps: the picks of this block's own tokens, a token each.
template <class SplitT>
__device__ __forceinline__ void score_tokens(Shared& s, const NormGateParts& a,
                                             int64_t first_token) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t t = first_token + blockIdx.x % kBlocks * kOwnTokens + warp;
  if (warp >= kOwnTokens || t >= a.norm.tokens) return;
  const RouteRule& rule = a.scores.rule;
  const float* logits = s.results.logit[warp];
  const Pick pick = choose_experts<SplitT::kPerLane>(rule, logits, nullptr, lane);
  const float weight = pick_weight(rule, logits, pick, lane);
  if (lane == 0 && !pick.usable) atomicAdd(a.scores.unusable, 1);
  if (lane >= rule.top_k) return;
  a.scores.expert[t * rule.top_k + lane] = pick.expert;
  a.scores.weight[t * rule.top_k + lane] = weight;
  store_in_first_block(&s.results.pick[t - first_token][lane], pick.expert, &s.picks_full);
}

// Where a thread stands: its block's inputs, its token, and the tiles of experts and tokens of its warp.
template <class SplitT>
struct Place {
  Slice slice;
  int token, expert, part_token;
  int64_t first_token, t;
  const float* row;  // null: no such token
  __device__ __forceinline__ explicit Place(const NormGateParts& a)
      : slice(a.norm.width), token(static_cast<int>(threadIdx.x) / kRowThreads) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    expert = warp % SplitT::kTiles * kExpertTile;
    part_token = warp / SplitT::kTiles * SplitT::kTokenTiles * kTokenTile;
    first_token = blockIdx.x / kBlocks * int64_t{kTokens};
    t = first_token + token;
    row = t < a.norm.tokens ? a.norm.x + t * a.norm.width : nullptr;
  }
  __device__ __forceinline__ bool multiplies() const { return part_token < kTokens; }
};

// The gate's part (0: high, 1: low) of a pass, for a chunk.
template <class SplitT>
__device__ __forceinline__ void ask_gate(Shared& s, const NormGateParts& a,
                                         const Place<SplitT>& place, int pass, int part,
                                         int64_t chunk) {
  const void* gate = part == 0 ? a.gate_high : a.gate_low;
  load_gate(s, static_cast<const bf16*>(gate), (2 - part) * a.norm.width,
            pass * SplitT::kPassExperts, SplitT::kPassExperts, a.num_experts, chunk,
            place.slice.end);
}

// The products of this block's inputs; returns this thread's squares. The first gate rows were asked for, and are waited for in any case:
// what is asked for and not waited for could land in what uses the memory next.
template <class SplitT>
__device__ __forceinline__ float multiply_slice(
    float (&sum)[SplitT::kPasses][SplitT::kTokenTiles][4], Shared& s, const NormGateParts& a,
    const Place<SplitT>& place, RowChunk& weight) {
  const Slice& slice = place.slice;
  const int parts = a.gate_low != nullptr ? 2 : 1;
  float squares = 0;
  RowChunk x;
#pragma unroll 1
  for (int64_t chunk = slice.begin; chunk < slice.end; chunk += kChunk) {
    x.load(place.row, chunk, slice.end);
    if (!SplitT::kEarly || chunk > slice.begin) weight.load(a.norm.weight, chunk, slice.end);
    if (chunk > slice.begin) __syncthreads();
    squares += x.squares();
    x.weigh(weight);
    x.store_parts(s);
#pragma unroll
    for (int pass = 0; pass < SplitT::kPasses; ++pass) {
#pragma unroll 1
      for (int part = 0; part < parts; ++part) {
        if (chunk > slice.begin || pass > 0 || part > 0) {
          __syncthreads();
          ask_gate(s, a, place, pass, part, chunk);
        }
        copies_wait<0>();
        __syncthreads();
        if (!place.multiplies()) continue;
        if (part == 0) {
          multiply<SplitT, true>(sum[pass], s.factors, place.expert, place.part_token);
        } else {
          multiply<SplitT, false>(sum[pass], s.factors, place.expert, place.part_token);
        }
      }
    }
  }
  copies_wait<0>();
  fence_async_shared();  // peers' copies will come where these factors lie
  __syncthreads();
  return squares;
}

// The sum over the threads of a token, the same in each.
__device__ __forceinline__ float token_sum(float v) {
#pragma unroll
  for (int step = 1; step < kRowThreads; step *= 2) v += __shfl_xor_sync(kAllLanes, v, step);
  return v;
}

// 1 / rms of this thread's token, out of all blocks' squares.
__device__ __forceinline__ float join_scale(Shared& s, const NormRows& norm, int token) {
  static_assert(kRowThreads == kBlocks);
  const float all = token_sum(s.all_squares[threadIdx.x % kRowThreads][token]);
  const float scale = rsqrtf(all / static_cast<float>(norm.width) + norm.eps);
  if (threadIdx.x % kRowThreads == 0) s.scale[token] = scale;
  return scale;
}

// This block's inputs of all tokens, normed. x and weight hold the first chunk.
__device__ __forceinline__ void write_rows(const NormRows& norm, const Slice& slice,
                                           const float* row, int64_t t, float scale, RowChunk& x,
                                           RowChunk& weight) {
#pragma unroll 1
  for (int64_t chunk = slice.begin; chunk < slice.end && row != nullptr; chunk += kChunk) {
    if (chunk > slice.begin) {
      x.load(row, chunk, slice.end);
      weight.load(norm.weight, chunk, slice.end);
    }
    x.weigh(weight);
    x.store_normed(norm, t, scale, chunk, slice.end);
  }
}

// Barriers and counts, known to the whole cluster after its barrier.
template <class SplitT>
__device__ __forceinline__ void set_up(Shared& s, const NormGateParts& a, int64_t first_token) {
  for (int e = threadIdx.x; e < a.num_experts; e += kThreads) s.count[e] = 0;
  if (threadIdx.x == 0) {
    for (uint64_t* barrier : {&s.squares_full, &s.parts_full, &s.picks_full}) {
      barrier_init(shared_address(barrier), 1);
    }
    barrier_init_done();
    cluster_barriers_init_done();
    const auto tokens = static_cast<uint32_t>(min(a.norm.tokens - first_token, int64_t{kTokens}));
    barrier_arrive_expect(shared_address(&s.squares_full), sizeof(s.all_squares));
    barrier_arrive_expect(shared_address(&s.parts_full), kBlocks * SplitT::kPartBytes);
    barrier_arrive_expect(shared_address(&s.picks_full), tokens * a.scores.rule.top_k * 4);
  }
  __syncthreads();
  cluster_arrive();
}

// The first block: what all have picked.
__device__ __forceinline__ void store_counts(Shared& s, const NormGateParts& a,
                                             int64_t first_token) {
  const int top_k = a.scores.rule.top_k;
  const int tokens = static_cast<int>(min(a.norm.tokens - first_token, int64_t{kTokens}));
  barrier_wait(shared_address(&s.picks_full), 0);
  for (int i = threadIdx.x; i < tokens * top_k; i += kThreads) {
    atomicAdd(&s.count[s.results.pick[i / top_k][i % top_k]], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < a.num_experts; e += kThreads) {
    a.scores.counts[blockIdx.x / kBlocks * int64_t{a.num_experts} + e] = s.count[e];
  }
}

template <class SplitT>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 2)
    norm_gate_parts_kernel(const __grid_constant__ NormGateParts a) {
  extern __shared__ __align__(128) uint8_t bytes[];
  Shared& s = *reinterpret_cast<Shared*>(bytes);
  const Place<SplitT> place(a);
  const Slice& slice = place.slice;
  set_up<SplitT>(s, a, place.first_token);
  ask_gate(s, a, place, 0, 0, slice.begin);
  RowChunk weight, x;
  if (SplitT::kEarly) weight.load(a.norm.weight, slice.begin, slice.end);
  let_next_begin();
  wait_for_previous();
  float sum[SplitT::kPasses][SplitT::kTokenTiles][4] = {};
  const float squares = token_sum(multiply_slice<SplitT>(sum, s, a, place, weight));
  __syncwarp();
  cluster_wait();    // all are set up
  cluster_arrive();  // this block's factors are read, so others may send
  if (place.multiplies()) store_sums<SplitT>(s, sum, place.expert, place.part_token);
  if (threadIdx.x % kRowThreads == 0) s.squares[place.token] = squares;
  __syncwarp();
  cluster_wait();
  send_parts<SplitT>(s);
  // Again, for the normed rows: held over the products they would not fit in registers.
  x.load(place.row, slice.begin, slice.end);
  weight.load(a.norm.weight, slice.begin, slice.end);
  barrier_wait(shared_address(&s.squares_full), 0);
  const float scale = join_scale(s, a.norm, place.token);
  write_rows(a.norm, slice, place.row, place.t, scale, x, weight);
  barrier_wait(shared_address(&s.parts_full), 0);
  __syncthreads();
  cluster_arrive();  // this block has all that it was sent
  join_logits<SplitT>(s, a, place.first_token);
  __syncthreads();
  if (a.scores.expert != nullptr) score_tokens<SplitT>(s, a, place.first_token);
  __syncwarp();
  cluster_wait();  // and the others
  if (a.scores.expert != nullptr && blockIdx.x % kBlocks == 0)
    store_counts(s, a, place.first_token);
}

template <int kTiles, int kPasses>
void launch(const NormGateParts& args, StreamHandle stream) noexcept {
  const auto kernel = norm_gate_parts_kernel<Split<kTiles, kPasses>>;
  constexpr int kBytes = static_cast<int>(sizeof(Shared));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const unsigned clusters = grid_of(args.norm.tokens, kTokens);
  launch_chained(kernel, dim3(clusters * kBlocks), kThreads, kBytes, stream, args);
}

}  // namespace

bool norm_gate_parts_accepts(const NormGateParts& args) noexcept {
  // In a second wave of clusters the library is faster.
  const int64_t blocks = int64_t{grid_of(args.norm.tokens, kTokens)} * kBlocks;
  return device_chains() && args.norm.row == nullptr && args.norm.width % kGroup == 0 &&
         args.num_experts <= kMaxExperts && blocks <= num_multiprocessors();
}

void norm_gate_parts(const NormGateParts& args, StreamHandle stream) noexcept {
  if (args.norm.tokens == 0) return;
  if (args.num_experts <= kExpertTile) return launch<1, 1>(args, stream);
  if (args.num_experts <= 2 * kExpertTile) return launch<2, 1>(args, stream);
  if (args.num_experts <= 4 * kExpertTile) return launch<4, 1>(args, stream);
  if (args.num_experts <= 8 * kExpertTile) return launch<8, 1>(args, stream);
  launch<8, 2>(args, stream);
}

}  // namespace switchyard::cuda
