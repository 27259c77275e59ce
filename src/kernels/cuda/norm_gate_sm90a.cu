// SPDX-License-Identifier: Apache-2.0
// The norm before the experts, the gate's logits and the picks of some hundred tokens on Hopper, in one launch: the residual stream is read
// once.
//
//   logits[t, e] = (sum over k of x[t, k] w[k] gate[e, k]) / rms(x[t]);   rows[t] = rms_norm(x[t]) * w
//   cluster  8 blocks share 32 tokens; block r has the r-th part of D of all of them and of all experts, so that a gate row and a
//            token are read by one block each; 256 inputs at a time
//   factors  x w in two parts of bf16 (high + low, 2^-17 of the factor at most), the gate as split_gate made it: one part where
//            its weights are bf16, else two, and only low * low is left out
//   join     each block adds up what the 8 have for its 4 tokens, in the order of the blocks, out of their shared memory; the
//            squares likewise. A token's bits depend on its row, D and E alone. A warp then makes a token's picks (route_token.cuh).
//   cost     4 T D bytes read, 2 T D written; 64 KiB of the gate for each 32 tokens and block, from the L2
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm); Henry, Tang and Heinecke 2019, arXiv 1904.06376 (bf16 in parts).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/gate_entries.h"
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
};

struct Shared {
  struct Factors {
    uint8_t gate[kMaxTiles * kExpertTile][kRowBytes];
    uint8_t high[kTokens][kRowBytes], low[kTokens][kRowBytes];
  };
  struct Results {
    float sum[kTokens * (kMaxExperts + 4)];  // [token][experts + 4]
    float logit[kOwnTokens][kMaxExperts];
  };
  union {
    alignas(16) Factors factors;
    Results results;  // when the products are done
  };
  float squares[kTokens];
  float scale[kTokens];
  int count[kMaxExperts];  // picks of the whole cluster; of block 0
};

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The value at the same place of another block's shared memory.
__device__ __forceinline__ float load_of_block(const float* own, int block) {
  uint32_t at;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(at)
               : "r"(shared_address(own)), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
  return value;
}

__device__ __forceinline__ void add_to_first_block(int* own, int value) {
  uint32_t at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(at) : "r"(shared_address(own)));
  asm volatile("red.relaxed.cluster.shared::cluster.add.s32 [%0], %1;" ::"r"(at), "r"(value)
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
        s.results.sum[token * (SplitT::kExperts + 4) + e] = sum[pass][n][i];
      }
    }
  }
}

// The logits of this block's own tokens, out of all blocks' sums.
template <class SplitT>
__device__ __forceinline__ void join_logits(Shared& s, const NormGateParts& a,
                                            int64_t first_token) {
  const int own = static_cast<int>(blockIdx.x % kBlocks) * kOwnTokens;
  for (int i = threadIdx.x; i < kOwnTokens * a.num_experts; i += kThreads) {
    const int token = own + i / a.num_experts, e = i % a.num_experts;
    float part[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      part[b] = load_of_block(&s.results.sum[token * (SplitT::kExperts + 4) + e], b);
    }
    float sum = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) sum += part[b];
    const float logit = sum * s.scale[token];
    s.results.logit[i / a.num_experts][e] = logit;
    if (first_token + token < a.norm.tokens) {
      a.logits[(first_token + token) * a.num_experts + e] = logit;
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
  add_to_first_block(&s.count[pick.expert], 1);
}

template <class SplitT>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 2)
    norm_gate_parts_kernel(const __grid_constant__ NormGateParts a) {
  extern __shared__ __align__(128) uint8_t bytes[];
  Shared& s = *reinterpret_cast<Shared*>(bytes);
  const Slice slice(a.norm.width);
  const int warp = threadIdx.x / kWarp, token = threadIdx.x / kRowThreads;
  const int expert = warp % SplitT::kTiles * kExpertTile;
  const int part_token = warp / SplitT::kTiles * SplitT::kTokenTiles * kTokenTile;
  const int64_t first_token = blockIdx.x / kBlocks * int64_t{kTokens}, t = first_token + token;
  const float* row = t < a.norm.tokens ? a.norm.x + t * a.norm.width : nullptr;
  const auto ask_gate = [&](int pass, int part, int64_t chunk) {
    const void* gate = part == 0 ? a.gate_high : a.gate_low;
    load_gate(s, static_cast<const bf16*>(gate), (2 - part) * a.norm.width,
              pass * SplitT::kPassExperts, SplitT::kPassExperts, a.num_experts, chunk, slice.end);
  };
  ask_gate(0, 0, slice.begin);
  for (int e = threadIdx.x; e < a.num_experts; e += kThreads) s.count[e] = 0;
  RowChunk weight, x;
  constexpr bool kEarly = SplitT::kPasses == 1;  // else registers do not suffice
  if (kEarly) weight.load(a.norm.weight, slice.begin, slice.end);
  let_next_begin();
  wait_for_previous();
  float sum[SplitT::kPasses][SplitT::kTokenTiles][4] = {};
  float squares = 0;
  const int parts = a.gate_low != nullptr ? 2 : 1;
#pragma unroll 1
  for (int64_t chunk = slice.begin; chunk < slice.end; chunk += kChunk) {
    x.load(row, chunk, slice.end);
    if (!kEarly || chunk > slice.begin) weight.load(a.norm.weight, chunk, slice.end);
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
          ask_gate(pass, part, chunk);
        }
        copies_wait<0>();
        __syncthreads();
        if (part_token >= kTokens) continue;
        if (part == 0) {
          multiply<SplitT, true>(sum[pass], s.factors, expert, part_token);
        } else {
          multiply<SplitT, false>(sum[pass], s.factors, expert, part_token);
        }
      }
    }
  }
  copies_wait<0>();  // of a block without inputs
  __syncthreads();
  if (part_token < kTokens) store_sums<SplitT>(s, sum, expert, part_token);
#pragma unroll
  for (int step = 1; step < kRowThreads; step *= 2) {
    squares += __shfl_xor_sync(kAllLanes, squares, step);
  }
  if (threadIdx.x % kRowThreads == 0) s.squares[token] = squares;
  cluster_arrive();
  // Again, for the normed rows: held over the products they would not fit in registers.
  x.load(row, slice.begin, slice.end);
  weight.load(a.norm.weight, slice.begin, slice.end);
  cluster_wait();
  static_assert(kRowThreads == kBlocks);
  float all = load_of_block(&s.squares[token], threadIdx.x % kRowThreads);
#pragma unroll
  for (int step = 1; step < kRowThreads; step *= 2) all += __shfl_xor_sync(kAllLanes, all, step);
  const float scale = rsqrtf(all / static_cast<float>(a.norm.width) + a.norm.eps);
  if (threadIdx.x % kRowThreads == 0) s.scale[token] = scale;
  __syncthreads();
  join_logits<SplitT>(s, a, first_token);
  if (a.scores.expert != nullptr) {
    __syncthreads();
    score_tokens<SplitT>(s, a, first_token);
  }
  __syncwarp();
  cluster_arrive();  // this block is done with the others' memory
#pragma unroll 1
  for (int64_t chunk = slice.begin; chunk < slice.end && row != nullptr; chunk += kChunk) {
    if (chunk > slice.begin) {
      x.load(row, chunk, slice.end);
      weight.load(a.norm.weight, chunk, slice.end);
    }
    x.weigh(weight);
    x.store_normed(a.norm, t, scale, chunk, slice.end);
  }
  __syncwarp();
  cluster_wait();
  if (a.scores.expert == nullptr || blockIdx.x % kBlocks != 0) return;
  for (int e = threadIdx.x; e < a.num_experts; e += kThreads) {
    a.scores.counts[blockIdx.x / kBlocks * int64_t{a.num_experts} + e] = s.count[e];
  }
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
