// SPDX-License-Identifier: Apache-2.0
// The head of a decode step of at most 8 tokens in one launch: the last norm, the logits, and the largest of each row.
//
//   a block    one a multiprocessor, resident; of the vocabulary's tiles of 16 rows it takes every gridDim.x-th
//   producer   one warp streams the rows, 1024 columns of 16 rows a stage, from before the launches before it have ended
//   consumers  16 warps. They norm the tokens once, as bf16, and keep their share of k in registers as the 8-column operand of the mma;
//              each warp multiplies 32 of every 512 columns, and the 16 partial sums of an output meet in shared memory
//   largest    each output's thread keeps the best (logit, lowest token) it has made; the block that comes last joins all blocks' best
// The order of every sum is fixed by D alone, so a token's bits depend on its row alone.
// Floor: the bytes of the rows once, V D 2 / bandwidth.
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/read_shared.cuh"
#include "kernels/cuda/step_draw.cuh"
#include "kernels/cuda/step_head.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kRows = 16, kTokens = 8, kWarps = 16;
constexpr int kConsumers = kWarps * kWarp, kThreads = kConsumers + kWarp;
constexpr int kStageColumns = 1024, kMostStages = 6, kLeastStages = 3;
constexpr int kRowBytes = kStageColumns * 2;
constexpr int kPitch = kRowBytes + 64;  // neighbouring rows begin in other banks
constexpr int kStageBytes = kRows * kPitch;
constexpr int kTokenPad = 64;
constexpr int kMostParts = 4;  // D <= 4096
constexpr int kFinishers = kRows * kTokens;

struct Shared {
  uint64_t full[kMostStages], empty[kMostStages];
  float squares[kTokens][kWarps];
  float part[2][kWarps][kRows][kTokens + 1];
  bool last;
};

// The workspace: zero at first, and left so but for `best`.
struct Joined {
  uint32_t arrived, bad;       // blocks; a bit for each token with a NaN or infinity
  unsigned long long best[1];  // [blocks, kTokens]
};

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}

__device__ void produce(const StepHead& a, Shared& s, uint32_t ring, int stages) {
  const int lane = threadIdx.x % kWarp;
  const int parts = static_cast<int>(a.width) / kStageColumns;
  const auto* rows = static_cast<const char*>(a.table);
  int stage = 0;
  uint32_t parity = 0;
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < a.vocab;
       first += int64_t{gridDim.x} * kRows) {
    const int count = static_cast<int>(min(int64_t{kRows}, a.vocab - first));
    for (int part = 0; part < parts; ++part) {
      const uint32_t full = shared_address(&s.full[stage]);
      barrier_wait(shared_address(&s.empty[stage]), parity ^ 1);
      if (lane == 0) barrier_arrive_expect(full, static_cast<uint32_t>(count * kRowBytes));
      __syncwarp();
      if (lane < count) {
        bulk_copy(ring + stage * kStageBytes + lane * kPitch,
                  rows + ((first + lane) * a.width + part * kStageColumns) * 2, kRowBytes, full);
      }
      if (++stage == stages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

__device__ __forceinline__ void consumer_barrier() { fixed_barrier<1, kConsumers>(); }

// A warp owns a sixteenth of the columns of every token; its lanes keep them between the sum of squares and the product.
template <int kParts>
__device__ void norm_tokens(const StepHead& a, Shared& s, char* tokens) {
  constexpr int kHave = (kParts + 1) / 2;  // float4 of a lane
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int share = static_cast<int>(a.width) / kWarps;
  const auto column = [&](int i) { return warp * share + (i * kWarp + lane) * 4; };
  const auto mine = [&](int i) { return (i * kWarp + lane) * 4 < share; };
  float4 g[kHave], x[kTokens][kHave];
#pragma unroll
  for (int i = 0; i < kHave; ++i) {
    g[i] = mine(i) ? *reinterpret_cast<const float4*>(a.norm + column(i)) : make_float4(0, 0, 0, 0);
  }
  wait_for_previous();
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t row = t < a.tokens ? a.row[t] : a.row[0];
#pragma unroll
    for (int i = 0; i < kHave; ++i) {
      x[t][i] = t < a.tokens && mine(i)
                    ? *reinterpret_cast<const float4*>(a.x + row * a.width + column(i))
                    : make_float4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= a.tokens) break;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHave; ++i) sum += squares_of(x[t][i]);
    sum = warp_sum(sum);
    if (lane == 0) s.squares[t][warp] = sum;
  }
  consumer_barrier();
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= a.tokens) break;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += s.squares[t][w];
    const float scale = rsqrtf(sum / static_cast<float>(a.width) + a.epsilon);
    char* const to = tokens + t * (a.width * 2 + kTokenPad);
#pragma unroll
    for (int i = 0; i < kHave; ++i) {
      if (!mine(i)) continue;
      *reinterpret_cast<uint2*>(to + column(i) * 2) =
          make_uint2(pack_bf16(x[t][i].x * scale * g[i].x, x[t][i].y * scale * g[i].y),
                     pack_bf16(x[t][i].z * scale * g[i].z, x[t][i].w * scale * g[i].w));
    }
  }
  consumer_barrier();
}

// What the threads that finish outputs have seen.
struct Best {
  unsigned long long key = 0;
  bool bad = false;
};

// Sums of a tile's outputs, by the first kFinishers threads.
__device__ __forceinline__ void finish_tile(const StepHead& a, const Shared& s, int buffer,
                                            int64_t first, Best& best) {
  const int row = static_cast<int>(threadIdx.x) % kRows,
            token = static_cast<int>(threadIdx.x) / kRows;
  const int64_t n = first + row;
  if (token >= a.tokens || n >= a.vocab) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += s.part[buffer][w][row][token];
  const float logit = a.scale * sum;
  a.logits[token * a.vocab + n] = logit;
  best.bad |= (__float_as_uint(logit) & 0x7f800000u) == 0x7f800000u;
  best.key = larger(best.key, sort_key(logit, static_cast<int32_t>(n)));
}

template <int kParts>
__device__ Best consume(const StepHead& a, Shared& s, uint32_t ring, int stages, uint32_t tokens) {
  constexpr int kChunks = kStageColumns / (kWarps * 32);  // of a warp and a stage
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
  // Lanes without a token of their own repeat the first one; what they make is not stored.
  const int token = group < a.tokens ? group : 0;
  uint4 v[kParts][kChunks];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int column = part * kStageColumns + i * kWarps * 32 + warp * 32 + quad * 8;
      v[part][i] =
          read_shared(tokens + token * static_cast<uint32_t>(a.width * 2 + kTokenPad) + column * 2);
    }
  }
  Best best;
  int stage = 0, buffer = 0;
  uint32_t parity = 0;
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < a.vocab;
       first += int64_t{gridDim.x} * kRows) {
    float c[4] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      barrier_wait(shared_address(&s.full[stage]), parity);
      const uint32_t at = ring + stage * kStageBytes + group * kPitch + (warp * 32 + quad * 8) * 2;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const uint4 low = read_shared(at + i * kWarps * 64);
        const uint4 high = read_shared(at + 8 * kPitch + i * kWarps * 64);
        mma_bf16(c, low.x, high.x, low.y, high.y, v[part][i].x, v[part][i].y);
        mma_bf16(c, low.z, high.z, low.w, high.w, v[part][i].z, v[part][i].w);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&s.empty[stage]));
      if (++stage == stages) {
        stage = 0;
        parity ^= 1;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) s.part[buffer][warp][group + (i / 2) * 8][quad * 2 + i % 2] = c[i];
    consumer_barrier();
    if (threadIdx.x < kFinishers) finish_tile(a, s, buffer, first, best);
    buffer ^= 1;
  }
  return best;
}

// The best of this block's rows, then, in the block that comes last, of all.
__device__ void join(const StepHead& a, Shared& s, Best best) {
  auto& joined = *static_cast<Joined*>(a.workspace);
  const int lane = threadIdx.x % kWarp, token = static_cast<int>(threadIdx.x) / kRows;
  const unsigned bad = __ballot_sync(kAllLanes, best.bad);
#pragma unroll
  for (int step = kRows / 2; step > 0; step /= 2) {
    best.key = larger(best.key, __shfl_xor_sync(kAllLanes, best.key, step));
  }
  if (threadIdx.x % kRows == 0 && token < a.tokens) {
    joined.best[blockIdx.x * kTokens + token] = best.key;
    if ((bad >> (lane & ~(kRows - 1)) & 0xffffu) != 0) atomicOr(&joined.bad, 1u << token);
  }
  __threadfence();
  fixed_barrier<2, kFinishers>();
  if (threadIdx.x == 0) s.last = atomicAdd(&joined.arrived, 1u) == gridDim.x - 1;
  fixed_barrier<2, kFinishers>();
  if (!s.last) return;
  __threadfence();
  unsigned long long all = 0;
  if (token < a.tokens) {
#pragma unroll 9
    for (unsigned b = threadIdx.x % kRows; b < gridDim.x; b += kRows) {
      all = larger(all, __ldcg(&joined.best[b * kTokens + token]));
    }
  }
#pragma unroll
  for (int step = kRows / 2; step > 0; step /= 2) {
    all = larger(all, __shfl_xor_sync(kAllLanes, all, step));
  }
  const uint32_t bad_tokens = __ldcg(&joined.bad);
  if (threadIdx.x % kRows == 0 && token < a.tokens) {
    a.pick[token] = (bad_tokens >> token & 1) != 0
                        ? Sample::kNonFinite
                        : static_cast<int32_t>(~static_cast<uint32_t>(all));
  }
  fixed_barrier<2, kFinishers>();
  if (threadIdx.x == 0) joined.arrived = joined.bad = 0;
}

template <int kParts>
__global__ void __launch_bounds__(kThreads, 1)
    head_kernel(const __grid_constant__ StepHead a, int stages) {
  extern __shared__ __align__(128) char dynamic[];
  __shared__ Shared s;
  const uint32_t ring = shared_address(dynamic);
  char* const tokens = dynamic + stages * kStageBytes;
  if (threadIdx.x < kMostStages) {
    barrier_init(shared_address(&s.full[threadIdx.x]), 1);
    barrier_init(shared_address(&s.empty[threadIdx.x]), kWarps);
  }
  barrier_init_done();
  __syncthreads();
  let_next_begin();
  if (threadIdx.x >= kConsumers) {
    produce(a, s, ring, stages);
    wait_for_previous();
    return;
  }
  norm_tokens<kParts>(a, s, tokens);
  const Best best = consume<kParts>(a, s, ring, stages, shared_address(tokens));
  if (a.pick != nullptr && threadIdx.x < kFinishers) join(a, s, best);
}

int most_bytes() {
  static const int most = [] {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes - static_cast<int>(sizeof(Shared)) - 1024;
  }();
  return most;
}

int token_bytes(const StepHead& a) {
  return static_cast<int>(a.tokens * (a.width * 2 + kTokenPad));
}

int stages_of(const StepHead& a) {
  const int fit = (most_bytes() - token_bytes(a)) / kStageBytes;
  return fit < kMostStages ? fit : kMostStages;
}

template <int kParts>
void launch(const StepHead& args, cudaStream_t stream) {
  const auto kernel = head_kernel<kParts>;
  // Where this fails, so does every launch that needs it, and the step tells it.
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes());
  (void)raised;
  const int stages = stages_of(args);
  launch_chained(kernel, dim3(static_cast<unsigned>(num_multiprocessors())), kThreads,
                 static_cast<size_t>(stages * kStageBytes + token_bytes(args)), stream, args,
                 stages);
}

}  // namespace

int64_t step_head_workspace() noexcept { return 8 + int64_t{8} * kTokens * num_multiprocessors(); }

bool step_head_accepts(const StepHead& args) noexcept {
  return device_chains() && args.dtype == DType::bf16 && args.tokens <= kTokens &&
         args.width % kStageColumns == 0 && args.width <= kMostParts * kStageColumns &&
         stages_of(args) >= kLeastStages;
}

void step_head(const StepHead& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const int64_t parts = args.width / kStageColumns;
  if (parts == 1) return launch<1>(args, stream);
  if (parts == 2) return launch<2>(args, stream);
  if (parts == 3) return launch<3>(args, stream);
  launch<4>(args, stream);
}

}  // namespace switchyard::cuda
