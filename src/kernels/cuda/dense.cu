// SPDX-License-Identifier: Apache-2.0
// Dense products without a library.
//
// plain: one warp for one output column and up to 8 tokens, any shape, f32 or bf16.
// skinny: T <= 32, bf16, k % 32 == 0 (dense_few.cu is the quicker one up to 8). One block owns 16 weight rows and its 8 or 16 warps share out k; a lane copies 16 contiguous
//   bytes of a weight row into a ring of its own and reads them as mma operands. The order of k inside a step is permuted the same way for both
//   operands, so nothing is rearranged. Weights are the 16-row operand, tokens the 8-column one. Bound by the
//   weights' bytes: n k 2 / bandwidth. The split of k is fixed, so a token's bits depend on nothing but its row.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/read_shared.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kPlainWarps = 8, kPlainTokens = 8;
constexpr int kSkinnyRows = 16;
constexpr int64_t kSkinnyTokens = 32;

// Steps of k on their way in each warp: as many as let three blocks of 8 warps share a multiprocessor.
constexpr int ring_depth(int tiles) { return tiles == 1 ? 6 : tiles == 2 ? 4 : 3; }

__device__ void store(const Dense& a, int64_t t, int64_t n, float sum) {
  float value = a.alpha * sum + (a.bias != nullptr ? a.bias[n] : 0.0f);
  float* to = a.y + t * a.n + n;
  if (a.accumulate) value += *to;
  *to = value;
}

template <class T>
__global__ void __launch_bounds__(kPlainWarps* kWarp) plain_kernel(Dense a) {
  let_next_begin();
  wait_for_previous();
  const int lane = threadIdx.x % kWarp;
  const int64_t n = int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / kWarp;
  const int64_t first = int64_t{blockIdx.y} * kPlainTokens;
  const int64_t left = a.tokens - first;
  const int count = static_cast<int>(left < kPlainTokens ? left : kPlainTokens);
  if (n >= a.n) return;
  const T* w = static_cast<const T*>(a.weight) + n * a.k;
  const T* x = static_cast<const T*>(a.x) + first * a.k;
  float sum[kPlainTokens] = {};
  for (int64_t i = lane; i < a.k; i += kWarp) {
    const float weight = to_f32(w[i]);
#pragma unroll
    for (int t = 0; t < kPlainTokens; ++t) {
      if (t < count) sum[t] += weight * to_f32(x[t * a.k + i]);
    }
  }
#pragma unroll
  for (int t = 0; t < kPlainTokens; ++t) {
    const float all = warp_sum(sum[t]);
    if (lane == 0 && t < count) store(a, first + t, n, all);
  }
}

// 16 bytes of weights to shared memory, past L1 and registers.
__device__ __forceinline__ void copy_weights(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
// The same for tokens, which every block reads: through L1, or all blocks would wait for the same few lines of the L2.
__device__ __forceinline__ void copy_tokens(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// A lane's ring of operands: two weight rows and its tokens, 32 values of k a step, kDepth steps. Each lane copies and reads
// its own 16-byte slots, so no barrier is needed. (Loads to registers would do, but the assembler moves them down to their
// use, and then only one step is on its way.)
template <int kTiles, int kDepth>
struct Ring {
  static constexpr int kSlots = 2 + kTiles;
  const bf16* from[kSlots];  // at this lane's first value of k
  uint32_t at;               // shared address of this lane's first slot

  static constexpr int bytes(int warps) { return warps * kWarp * 16 * kSlots * kDepth; }

  // Queues the copies of a step, or nothing behind the end.
  __device__ void fetch(int64_t k, int64_t end, int slot) const {
    if (k < end) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        const uint32_t to = at + (slot * kSlots + i) * kWarp * 16;
        if (i < 2) {
          copy_weights(to, from[i] + k);
        } else {
          copy_tokens(to, from[i] + k);
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ uint4 read(int slot, int i) const {
    return read_shared(at + (slot * kSlots + i) * kWarp * 16);
  }
};

// kTiles tiles of 8 tokens. Lanes without a row or a token of their own repeat the last one; what they make is not stored.
template <int kTiles, int kSkinnyWarps>
__global__ void __launch_bounds__(kSkinnyWarps* kWarp) skinny_kernel(Dense a) {
  extern __shared__ __align__(16) unsigned char raw[];
  let_next_begin();
  wait_for_previous();
  constexpr int kDepth = ring_depth(kTiles), kStep = kSkinnyWarps * 32;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
  const int64_t row = int64_t{blockIdx.x} * kSkinnyRows + group, last = a.n - 1;
  const auto* w = static_cast<const bf16*>(a.weight) + quad * 8;
  const auto* x = static_cast<const bf16*>(a.x) + quad * 8;
  using Lanes = Ring<kTiles, kDepth>;
  Lanes ring;
  ring.at = static_cast<uint32_t>(__cvta_generic_to_shared(raw)) +
            (warp * Lanes::kSlots * kDepth * kWarp + lane) * 16;
  ring.from[0] = w + (row < last ? row : last) * a.k;
  ring.from[1] = w + (row + 8 < last ? row + 8 : last) * a.k;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int64_t t = tile * 8 + group;
    ring.from[2 + tile] = x + (t < a.tokens ? t : a.tokens - 1) * a.k;
  }
#pragma unroll
  for (int d = 0; d < kDepth; ++d) ring.fetch(warp * 32 + d * kStep, a.k, d);
  float c[kTiles][4] = {};
  int slot = 0;
  for (int64_t k = warp * 32; k < a.k; k += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    const uint4 low = ring.read(slot, 0), high = ring.read(slot, 1);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 v = ring.read(slot, 2 + tile);
      mma_bf16(c[tile], low.x, high.x, low.y, high.y, v.x, v.y);
      mma_bf16(c[tile], low.z, high.z, low.w, high.w, v.z, v.w);
    }
    ring.fetch(k + kDepth * kStep, a.k, slot);
    slot = slot + 1 < kDepth ? slot + 1 : 0;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();  // the rings are done with: their memory holds the warps' sums now
  auto& part = *reinterpret_cast<float(*)[kSkinnyWarps][kTiles][kSkinnyRows][8]>(raw);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[warp][tile][group + (i / 2) * 8][quad * 2 + i % 2] = c[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTiles * kSkinnyRows * 8; i += blockDim.x) {
    const int r = i % kSkinnyRows, t = i / kSkinnyRows;
    const int64_t n = int64_t{blockIdx.x} * kSkinnyRows + r;
    if (n >= a.n || t >= a.tokens) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSkinnyWarps; ++s) sum += part[s][t / 8][r][t % 8];
    store(a, t, n, sum);
  }
}

}  // namespace

void dense_plain(const Dense& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>((args.n + kPlainWarps - 1) / kPlainWarps),
                  static_cast<unsigned>((args.tokens + kPlainTokens - 1) / kPlainTokens));
  const auto kernel = args.dtype == DType::f32 ? plain_kernel<float> : plain_kernel<bf16>;
  launch_chained(kernel, grid, kPlainWarps * kWarp, 0, stream, args);
}

bool dense_skinny_accepts(const Dense& args) noexcept {
  return args.dtype == DType::bf16 && args.tokens <= kSkinnyTokens && args.k % 32 == 0;
}

// Where few rows make few blocks, more warps keep as many bytes on their way. T has no say, so a token's bits do not depend
// on it.
template <int kTiles, int kSkinnyWarps>
void launch_skinny_with(const Dense& args, unsigned blocks, StreamHandle stream) {
  constexpr int kBytes = Ring<kTiles, ring_depth(kTiles)>::bytes(kSkinnyWarps);
  static_assert(kBytes >= kSkinnyWarps * kTiles * kSkinnyRows * 8 * 4, "the sums do not fit");
  // Where this fails, so does every launch, and the step tells it.
  static const cudaError_t raised = cudaFuncSetAttribute(
      skinny_kernel<kTiles, kSkinnyWarps>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  (void)raised;
  launch_chained(skinny_kernel<kTiles, kSkinnyWarps>, dim3(blocks), kSkinnyWarps * kWarp, kBytes,
                 stream, args);
}

template <int kTiles>
void launch_skinny(const Dense& args, StreamHandle stream) {
  const auto blocks = static_cast<unsigned>((args.n + kSkinnyRows - 1) / kSkinnyRows);
  if (blocks < 2 * static_cast<unsigned>(num_multiprocessors())) {
    launch_skinny_with<kTiles, 16>(args, blocks, stream);
  } else {
    launch_skinny_with<kTiles, 8>(args, blocks, stream);
  }
}

void dense_skinny(const Dense& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (args.tokens <= 8) return launch_skinny<1>(args, stream);
  if (args.tokens <= 16) return launch_skinny<2>(args, stream);
  launch_skinny<4>(args, stream);
}

}  // namespace switchyard::cuda
