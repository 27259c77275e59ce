// SPDX-License-Identifier: Apache-2.0
// The norm before the experts and the gate's logits on tensor cores, as exact as sums in f32: each factor is a sum of two bf16
// numbers (high + low, an error of 2^-17 of the factor), and of the four products only low * low is left out.
//
//   norm_gate   17 to some hundred tokens, one launch: logits[t, e] = (sum over k of x[t, k] (w[k] gate[e, k])) / rms(x[t])
//     a block   16 experts x 8 tokens; its 8 warps share out each 2048 inputs, so a lane holds 16 x 4 of them of three rows
//     experts   are the 16-row operand; they are weighed, split and in registers before the launch before this one has ended
//     norm      every block forms its tokens' rms anew; the blocks of a tile of tokens share out the normed rows that are stored
//   split_gate  gate rows for a product of many tokens by the library: x as [high | low] times [high | high], and high times low
// The order of k is that of no other kernel; the split of k depends on D alone, so a token's bits depend on its row alone.
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm); Henry, Tang and Heinecke 2019, arXiv 1904.06376 (bf16 in parts).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kGateExperts = 16, kGateTokens = 8;
constexpr int kGateWarps = 8;
constexpr int kSteps = 16;  // of 16 inputs, that a warp has of a chunk
constexpr int kWarpInputs = kSteps * 16, kChunk = kGateWarps * kWarpInputs;

// Two f32 values as two pairs of bf16, whose sums they are.
struct Split {
  uint32_t high, low;
};
__device__ __forceinline__ Split split(float a, float b) {
  const uint32_t high = pack_bf16(a, b);
  return {high, pack_bf16(a - low_bf16(high), b - high_bf16(high))};
}

__device__ __forceinline__ float4 load_quad(const float* row, int64_t k, int64_t width) {
  return k < width ? *reinterpret_cast<const float4*>(row + k) : make_float4(0, 0, 0, 0);
}

// What a lane holds of a chunk of two experts' weighed rows: operand a of mma_bf16, step by step.
struct GateTile {
  uint32_t high[kSteps][4], low[kSteps][4];

  // Rows beyond the last expert repeat it; what they make is not stored.
  __device__ __forceinline__ void load(const NormRoute& a, int64_t first) {
    const int lane = threadIdx.x % kWarp, last = a.num_experts - 1;
    const int expert = blockIdx.x * kGateExperts + lane / 4;
    const float* row[2] = {a.gate + int64_t{min(expert, last)} * a.norm.width,
                           a.gate + int64_t{min(expert + 8, last)} * a.norm.width};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t k = first + step * 16;
      const float4 w = load_quad(a.norm.weight, k, a.norm.width);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 g = load_quad(row[i], k, a.norm.width);
        const Split near = split(g.x * w.x, g.y * w.y), far = split(g.z * w.z, g.w * w.w);
        high[step][i] = near.high;
        high[step][2 + i] = far.high;
        low[step][i] = near.low;
        low[step][2 + i] = far.low;
      }
    }
  }
};

struct GateSums {
  float high[4] = {}, low_gate[4] = {},
        low_x[4] = {};  // by which factors' parts they are products of
  float squares = 0;

  // A chunk of x, inputs `first` + 16 steps of this lane's token, read all at once.
  __device__ __forceinline__ void add(const GateTile& gate, const float* x, int64_t first,
                                      int64_t width) {
    float4 v[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) v[step] = load_quad(x, first + step * 16, width);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      squares += squares_of(v[step]);
      const Split near = split(v[step].x, v[step].y), far = split(v[step].z, v[step].w);
      const uint32_t(&g)[4] = gate.high[step], (&l)[4] = gate.low[step];
      mma_bf16(high, g[0], g[1], g[2], g[3], near.high, far.high);
      mma_bf16(low_x, g[0], g[1], g[2], g[3], near.low, far.low);
      mma_bf16(low_gate, l[0], l[1], l[2], l[3], near.high, far.high);
    }
  }
};

// The warps' sums of a block, and 1 / rms of its tokens.
struct GateShared {
  float part[kGateWarps][kGateTokens][kGateExperts];
  float squares[kGateWarps][kGateTokens];
  float scale[kGateTokens];
};

__device__ __forceinline__ void join_warps(GateShared& s, const NormRoute& a,
                                           const GateSums& sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float squares = sums.squares;
  squares += __shfl_xor_sync(kAllLanes, squares, 1);
  squares += __shfl_xor_sync(kAllLanes, squares, 2);
  if (lane % 4 == 0) s.squares[warp][lane / 4] = squares;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    s.part[warp][lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] =
        sums.high[i] + (sums.low_gate[i] + sums.low_x[i]);
  }
  __syncthreads();
  if (threadIdx.x < kGateTokens) {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kGateWarps; ++w) all += s.squares[w][threadIdx.x];
    s.scale[threadIdx.x] = rsqrtf(all / static_cast<float>(a.norm.width) + a.norm.eps);
  }
  __syncthreads();
}

__device__ __forceinline__ void store_logits(const GateShared& s, const NormRoute& a) {
  if (threadIdx.x >= kGateTokens * kGateExperts) return;
  const int token = threadIdx.x / kGateExperts, expert = threadIdx.x % kGateExperts;
  const int64_t t = int64_t{blockIdx.y} * kGateTokens + token;
  const int e = blockIdx.x * kGateExperts + expert;
  if (t >= a.norm.tokens || e >= a.num_experts) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kGateWarps; ++w) sum += s.part[w][token][expert];
  a.logits[t * a.num_experts + e] = sum * s.scale[token];
}

// A warp a token: this block's share of its normed row.
__device__ __forceinline__ void store_rows(const GateShared& s, const NormRoute& a) {
  static_assert(kGateTokens == kGateWarps);
  const int token = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t t = int64_t{blockIdx.y} * kGateTokens + token;
  if (t >= a.norm.tokens) return;
  const int64_t quads = a.norm.width / 4, shares = gridDim.x;
  const int64_t end = quads * (blockIdx.x + 1) / shares;
  const float scale = s.scale[token];
#pragma unroll 4
  for (int64_t i = quads * blockIdx.x / shares + lane; i < end; i += kWarp) {
    const float4 v = reinterpret_cast<const float4*>(a.norm.x + t * a.norm.width)[i];
    const float4 w = reinterpret_cast<const float4*>(a.norm.weight)[i];
    const float4 y =
        make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
    const int64_t at = t * a.norm.width + i * 4;
    if (a.norm.y_f32 != nullptr) *reinterpret_cast<float4*>(a.norm.y_f32 + at) = y;
    if (a.norm.y_bf16 != nullptr) {
      *reinterpret_cast<uint2*>(static_cast<bf16*>(a.norm.y_bf16) + at) =
          make_uint2(pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
    }
  }
}

__global__ void __launch_bounds__(kGateWarps* kWarp, 1) norm_gate_kernel(NormRoute a) {
  __shared__ GateShared shared;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first = warp * kWarpInputs + lane % 4 * 4;
  const int64_t t = int64_t{blockIdx.y} * kGateTokens + lane / 4;
  const float* x = a.norm.x + (t < a.norm.tokens ? t : a.norm.tokens - 1) * a.norm.width;
  GateTile gate;
  gate.load(a, first);
  let_next_begin();
  wait_for_previous();
  GateSums sums;
  sums.add(gate, x, first, a.norm.width);
  for (int64_t chunk = kChunk; chunk < a.norm.width; chunk += kChunk) {
    gate.load(a, chunk + first);
    sums.add(gate, x, chunk + first, a.norm.width);
  }
  join_warps(shared, a, sums);
  store_logits(shared, a);
  store_rows(shared, a);
}

__global__ void split_gate_kernel(SplitGate a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.num_experts * a.width) return;
  const float value = a.gate[i];
  const bf16 high = from_f32<bf16>(value), low = from_f32<bf16>(value - to_f32(high));
  auto* twice = static_cast<bf16*>(a.high) + i / a.width * 2 * a.width + i % a.width;
  twice[0] = twice[a.width] = high;
  static_cast<bf16*>(a.low)[i] = low;
  if (to_f32(low) != 0) *a.any_low = 1;
}

}  // namespace

bool norm_gate_accepts(const NormRoute& args) noexcept {
  constexpr int kMostWaves = 2;  // one block a multiprocessor
  const int64_t blocks =
      int64_t{grid_of(args.num_experts, kGateExperts)} * grid_of(args.norm.tokens, kGateTokens);
  return args.norm.row == nullptr && args.norm.width % 4 == 0 && args.norm.y_split == nullptr &&
         blocks <= int64_t{kMostWaves} * num_multiprocessors();
}

void norm_gate(const NormRoute& args, StreamHandle stream) noexcept {
  if (args.norm.tokens == 0) return;
  const dim3 grid(grid_of(args.num_experts, kGateExperts), grid_of(args.norm.tokens, kGateTokens));
  launch_chained(norm_gate_kernel, grid, kGateWarps * kWarp, 0, stream, args);
}

void split_gate(const SplitGate& args, StreamHandle stream) noexcept {
  const unsigned blocks = grid_of(args.num_experts * args.width, 256);
  split_gate_kernel<<<blocks, 256, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
