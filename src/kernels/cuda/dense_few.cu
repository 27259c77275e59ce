// SPDX-License-Identifier: Apache-2.0
// Dense products of at most 8 tokens, bf16: y [T, n] = x [T, k] W^T, where x may be the residual stream behind its norm.
//
//   a block   owns 16 rows of W; its 8 or 16 warps share out k, 32 values a step each
//   weights   16 bytes a lane go into a ring of the lane's own in shared memory, as many steps ahead as fit, the first of
//             them before the launch before this one has ended (chain.cuh); they are the 16-row operand of the mma
//   tokens    are put into shared memory once, as the 8-column operand, normed on the way where asked: the norm costs no launch of
//             its own, and its values are norm_rows' but for the order of a sum
//   next      memory that a later launch reads is asked for (into the L2) once this block's own weights are on their way
// The order of k inside a step is permuted alike for both operands. The split of k depends on n and k alone, so a token's bits
// depend on its row alone; without a norm they are dense_skinny's.
// Floor: the weights' bytes, n k 2 / bandwidth.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/read_shared.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kRows = 16, kTokens = 8;
constexpr int kEarly = 2;  // float4 of the norm's weights that a thread holds before the wait
constexpr int kPadBytes =
    64;  // behind a token's row, so that the rows of 8 tokens start in different banks

template <int kWarps, int kDepth>
constexpr int ring_bytes() {
  return kWarps * kDepth * 2 * kWarp * 16;
}
int64_t token_bytes(const Dense& a) { return a.tokens * (a.k * 2 + kPadBytes); }

__device__ __forceinline__ void copy_weights(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}

// A lane's two weight rows, kDepth steps of them.
template <int kWarps, int kDepth>
struct WeightRing {
  const bf16* from[2];
  uint32_t at;  // shared address of this lane's first slot

  __device__ WeightRing(const Dense& a, uint32_t base) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int64_t row = int64_t{blockIdx.x} * kRows + lane / 4, last = a.n - 1;
    const auto* w = static_cast<const bf16*>(a.weight) + lane % 4 * 8;
    from[0] = w + (row < last ? row : last) * a.k;
    from[1] = w + (row + 8 < last ? row + 8 : last) * a.k;
    at = base + (warp * kDepth * 2 * kWarp + lane) * 16;
  }
  // Queues the copies of a step, or nothing behind the end.
  __device__ void fetch(int64_t k, int64_t end, int slot) const {
    if (k < end) {
      copy_weights(at + slot * 2 * kWarp * 16, from[0] + k);
      copy_weights(at + (slot * 2 + 1) * kWarp * 16, from[1] + k);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ uint4 read(int slot, int i) const {
    return read_shared(at + (slot * 2 + i) * kWarp * 16);
  }
};

__device__ __forceinline__ char* token_row(const Dense& a, char* tokens, int64_t t) {
  return tokens + t * (a.k * 2 + kPadBytes);
}

// Rows of x follow each other, so chunks are counted through all of them.
__device__ void stage_rows(const Dense& a, char* tokens) {
  constexpr int kBatch = 4;
  const int chunks = static_cast<int>(a.k / 8), threads = static_cast<int>(blockDim.x);
  const int all = chunks * static_cast<int>(a.tokens);
  const auto* from = static_cast<const uint4*>(a.x);
  for (int first = threadIdx.x; first < all; first += kBatch * threads) {
    uint4 v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * threads < all) v[i] = from[first + i * threads];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = first + i * threads;
      if (at >= all) break;
      reinterpret_cast<uint4*>(token_row(a, tokens, at / chunks))[at % chunks] = v[i];
    }
  }
}

template <int kWarps>
__device__ float rms_scale(const Dense& a, const float (&squares)[kWarps]) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += squares[w];
  return rsqrtf(sum / static_cast<float>(a.k) + a.norm.eps);
}

__device__ __forceinline__ uint2 normed_quad(const float4& x, float scale, const float4& g) {
  return make_uint2(pack_bf16(x.x * scale * g.x, x.y * scale * g.y),
                    pack_bf16(x.z * scale * g.z, x.w * scale * g.w));
}

// Normed rows of the residual stream, kBatch tokens at a time. A thread keeps its share of a row in registers between the sum of
// squares and the product with the scale, and reads what is beyond kEarly again.
template <int kWarps, int kBatch>
__device__ void stage_normed(const Dense& a, const float4 (&early)[kEarly], char* tokens,
                             float (&squares)[kTokens][kWarps]) {
  constexpr int kThreads = kWarps * kWarp;
  const int quads = static_cast<int>(a.k / 4), count = static_cast<int>(a.tokens);
  const auto* weight = reinterpret_cast<const float4*>(a.norm.weight);
  for (int first = 0; first < count; first += kBatch) {
    const float4* from[kBatch];
    float4 x[kBatch][kEarly];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int t = min(first + j, count - 1);
      const int64_t row = a.norm.row != nullptr ? a.norm.row[t] : t;
      from[j] = reinterpret_cast<const float4*>(a.norm.x + row * a.k);
#pragma unroll
      for (int i = 0; i < kEarly; ++i) {
        const int at = static_cast<int>(threadIdx.x) + i * kThreads;
        x[j][i] = at < quads ? from[j][at] : make_float4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kEarly; ++i) sum += squares_of(x[j][i]);
#pragma unroll 2
      for (int at = threadIdx.x + kEarly * kThreads; at < quads; at += kThreads) {
        sum += squares_of(from[j][at]);
      }
      sum = warp_sum(sum);
      if (threadIdx.x % kWarp == 0 && first + j < count) {
        squares[first + j][threadIdx.x / kWarp] = sum;
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (first + j >= count) break;
      const float scale = rms_scale<kWarps>(a, squares[first + j]);
      auto* to = reinterpret_cast<uint2*>(token_row(a, tokens, first + j));
#pragma unroll
      for (int i = 0; i < kEarly; ++i) {
        const int at = static_cast<int>(threadIdx.x) + i * kThreads;
        if (at < quads) to[at] = normed_quad(x[j][i], scale, early[i]);
      }
#pragma unroll 2
      for (int at = threadIdx.x + kEarly * kThreads; at < quads; at += kThreads) {
        to[at] = normed_quad(from[j][at], scale, weight[at]);
      }
    }
  }
}

// The output that a thread finishes, with what is known of it before the sums are.
struct Output {
  float* to = nullptr;  // null: none
  int row = 0, token = 0;
  float before = 0, bias = 0;

  __device__ explicit Output(const Dense& a)
      : row(static_cast<int>(threadIdx.x) % kRows), token(static_cast<int>(threadIdx.x) / kRows) {
    const int64_t n = int64_t{blockIdx.x} * kRows + row;
    if (n >= a.n || token >= a.tokens) return;
    to = a.y + token * a.n + n;
    if (a.bias != nullptr) bias = a.bias[n];
    if (a.accumulate) before = *to;
  }
};
static_assert(kRows * kTokens <= 8 * kWarp, "a thread for each output");

template <int kWarps, int kDepth, bool kNorm>
__global__ void __launch_bounds__(kWarps* kWarp, kWarps == 8 ? 3 : 1) few_kernel(Dense a) {
  extern __shared__ __align__(16) char raw[];
  __shared__ float squares[kTokens][kWarps];
  char* const tokens = raw + ring_bytes<kWarps, kDepth>();
  constexpr int kStep = kWarps * 32;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(raw));
  const WeightRing<kWarps, kDepth> ring(a, base);
  float4 early[kEarly];
  if constexpr (kNorm) {  // before the weights: behind them they would come last
#pragma unroll
    for (int i = 0; i < kEarly; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kWarps * kWarp;
      early[i] = at < a.k / 4 ? reinterpret_cast<const float4*>(a.norm.weight)[at]
                              : make_float4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int d = 0; d < kDepth; ++d) ring.fetch(warp * 32 + d * kStep, a.k, d);
  let_next_begin();
  wait_for_previous();
  if constexpr (kNorm) {
    if (a.tokens == 1) {
      stage_normed<kWarps, 1>(a, early, tokens, squares);
    } else {
      stage_normed<kWarps, 4>(a, early, tokens, squares);
    }
  } else {
    stage_rows(a, tokens);
  }
  const Output output(a);
  __syncthreads();
  // Lanes without a token of their own repeat the last one; what they make is not stored.
  const int64_t token = group < a.tokens ? group : a.tokens - 1;
  const uint32_t own = base + static_cast<uint32_t>(token_row(a, tokens, token) - raw) + quad * 16;
  float c[4] = {};
  int slot = 0;
  for (int64_t k = warp * 32; k < a.k; k += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    const uint4 low = ring.read(slot, 0), high = ring.read(slot, 1);
    const uint4 v = read_shared(own + static_cast<uint32_t>(k) * 2);
    mma_bf16(c, low.x, high.x, low.y, high.y, v.x, v.y);
    mma_bf16(c, low.z, high.z, low.w, high.w, v.z, v.w);
    ring.fetch(k + kDepth * kStep, a.k, slot);
    slot = slot + 1 < kDepth ? slot + 1 : 0;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (threadIdx.x == 0) ask_for_share(a.next, a.next_bytes, blockIdx.x, gridDim.x);
  __syncthreads();  // the rings are done with: their memory holds the warps' sums now
  auto& part = *reinterpret_cast<float(*)[kWarps][kRows][kTokens + 1]>(raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) part[warp][group + (i / 2) * 8][quad * 2 + i % 2] = c[i];
  __syncthreads();
  if (output.to == nullptr) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += part[w][output.row][output.token];
  const float value = a.alpha * sum + output.bias;
  *output.to = a.accumulate ? value + output.before : value;
}

// What a block may take of a multiprocessor's shared memory, less what it has besides the ring and the tokens.
int64_t most_shared_bytes() {
  static const int64_t most = [] {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return int64_t{bytes} - 2048;
  }();
  return most;
}

template <int kWarps, int kDepth, bool kNorm>
void launch_with(const Dense& args, unsigned blocks, StreamHandle stream) {
  static_assert(ring_bytes<kWarps, kDepth>() >= kWarps * kRows * (kTokens + 1) * 4,
                "the sums do not fit");
  const auto kernel = few_kernel<kWarps, kDepth, kNorm>;
  // Where this fails, so does every launch that needs it, and the step tells it.
  static const cudaError_t raised = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most_shared_bytes()));
  (void)raised;
  const auto bytes = static_cast<size_t>(ring_bytes<kWarps, kDepth>() + token_bytes(args));
  launch_chained(kernel, dim3(blocks), kWarps * kWarp, bytes, stream, args);
}

// Many blocks: twice the steps as long as three blocks still share a multiprocessor. Few: as many steps as fit.
template <bool kNorm>
void launch_for(const Dense& args, StreamHandle stream) {
  constexpr int64_t kThird = 74 * 1024;
  const auto blocks = static_cast<unsigned>((args.n + kRows - 1) / kRows);
  if (blocks >= 2 * static_cast<unsigned>(num_multiprocessors())) {
    if (ring_bytes<8, 8>() + token_bytes(args) <= kThird) {
      return launch_with<8, 8, kNorm>(args, blocks, stream);
    }
    return launch_with<8, 4, kNorm>(args, blocks, stream);
  }
  if (ring_bytes<16, 8>() + token_bytes(args) <= most_shared_bytes()) {
    return launch_with<16, 8, kNorm>(args, blocks, stream);
  }
  launch_with<16, 4, kNorm>(args, blocks, stream);
}

}  // namespace

bool dense_few_accepts(const Dense& args) noexcept {
  const int64_t most_tokens = kTokens * (args.k * 2 + kPadBytes);
  return args.dtype == DType::bf16 && args.tokens <= kTokens && args.k % 32 == 0 &&
         ring_bytes<16, 4>() + most_tokens <= most_shared_bytes() &&
         (args.norm.x == nullptr || args.norm.width == args.k);
}

// As in dense.cu: where few rows make few blocks, more warps keep as many bytes on their way. T has no say in how k is split.
void dense_few(const Dense& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (args.norm.x != nullptr) return launch_for<true>(args, stream);
  launch_for<false>(args, stream);
}

}  // namespace switchyard::cuda
