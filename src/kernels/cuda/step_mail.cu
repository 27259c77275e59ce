// SPDX-License-Identifier: Apache-2.0
// The first and the last launch of a step (step_mail.h).
//
//   begin    few tokens: one launch, a block a token; given arrays are copied by block 0. More tokens: one launch copies the arrays, a
//            second one, a block a token, brings the embeddings: a block that reads a word of host memory of its own costs 60 ns, one after
//            the other, while neighbouring threads read 50 KB in 2 us
//   publish  one block a MoE layer counts its picks; the block that comes last writes the number that the host waits for, behind a
//            fence of the whole system
// Bound by latency: one read of host memory, about 1.5 us, where arrays are given; a write and its fence at the end.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/step_mail.h"
#include "kernels/cuda/step_math.cuh"
#include "kernels/ops/moe_route.h"

namespace switchyard::cuda {
namespace {

constexpr int kBeginThreads = 512, kCopyThreads = 256, kEmbedThreads = 256;
constexpr int64_t kFewTokens = 8;  // for which one launch is faster than two

// Token t of a step that advances, and its arrays one position on. Padding repeats the first sequence, with a slot that nobody reads.
__device__ int advance(const BeginStep& a, int t) {
  const StepLayout& at = a.layout;
  const int live = a.arrays[StepLayout::kLive];
  const int token = max(0, a.pick[t < live ? t : 0]);  // no token: nobody wants this step
  a.arrays[at.token + t] = token;
  a.arrays[at.rope_row + t] += 1;
  if (t < live) a.arrays[at.slot + t] += 1;
  a.arrays[at.context_len + t] += 1;
  if (at.end > at.sample) reinterpret_cast<SampleRow*>(a.arrays + at.sample)[t].position += 1;
  return token;
}

// Thread `thread` of `threads`: the step's arrays, given.
__device__ __forceinline__ void copy_arrays(const BeginStep& a, const int32_t* slot, int thread,
                                            int threads) {
  auto* const to = reinterpret_cast<int4*>(a.arrays);
  for (int i = thread; i < a.layout.end / 4; i += threads) {
    to[i] = __ldcv(reinterpret_cast<const int4*>(slot) + i);
  }
}

// Whole block: x[t].
template <class T>
__device__ __forceinline__ void embed(const BeginStep& a, int t, int token) {
  constexpr int kEach = 16 / sizeof(T);
  const T* const from = static_cast<const T*>(a.table) + int64_t{token} * a.width;
  float* const to = a.x + t * a.width;
  if (a.width % kEach != 0) {
    for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) to[i] = to_f32(from[i]) * a.scale;
    return;
  }
  for (int64_t i = threadIdx.x * int64_t{kEach}; i < a.width; i += blockDim.x * int64_t{kEach}) {
    const uint4 bits = *reinterpret_cast<const uint4*>(from + i);
    const T* const value = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int j = 0; j < kEach; j += 4) {
      *reinterpret_cast<float4*>(to + i + j) =
          make_float4(to_f32(value[j]) * a.scale, to_f32(value[j + 1]) * a.scale,
                      to_f32(value[j + 2]) * a.scale, to_f32(value[j + 3]) * a.scale);
    }
  }
}

template <class T, bool kAdvances>
__global__ void __launch_bounds__(kBeginThreads) begin_kernel(BeginStep a) {
  __shared__ int shared_token;
  if (!a.arrays_are_awaited) let_next_begin();
  const int t = static_cast<int>(blockIdx.x);
  const int32_t* const slot = a.slots + *a.turn % kMailSlots * a.slot_words;
  if (threadIdx.x == 0) {
    shared_token = kAdvances ? advance(a, t) : __ldcv(slot + a.layout.token + t);
  }
  if (t == 0 && !kAdvances) copy_arrays(a, slot, threadIdx.x, kBeginThreads);
  if (a.arrays_are_awaited) __threadfence();
  __syncthreads();
  if (a.arrays_are_awaited) let_next_begin();
  embed<T>(a, t, shared_token);
}

// The arrays alone; they are complete when the next launch begins.
__global__ void __launch_bounds__(kCopyThreads) begin_arrays_kernel(BeginStep a) {
  const int32_t* const slot = a.slots + *a.turn % kMailSlots * a.slot_words;
  copy_arrays(a, slot, static_cast<int>(blockIdx.x * kCopyThreads + threadIdx.x),
              static_cast<int>(gridDim.x * kCopyThreads));
  __threadfence();
  __syncthreads();
  let_next_begin();
}

template <class T>
__global__ void __launch_bounds__(kEmbedThreads) begin_rows_kernel(BeginStep a) {
  let_next_begin();
  wait_for_previous();
  const int t = static_cast<int>(blockIdx.x);
  embed<T>(a, t, a.arrays[a.layout.token + t]);
}

// Rows that could not be scored have experts 0 ... K-1 with weights of 0.
__device__ bool is_unusable(const int32_t* expert, const float* weight, int top_k) {
  for (int k = 0; k < top_k; ++k) {
    if (expert[k] != k || weight[k] != 0) return false;
  }
  return true;
}

// A layer's picks by expert, through shared memory to the host.
__device__ void count_layer(const PublishStep& a, int l, int32_t* slot) {
  extern __shared__ int count[];
  __shared__ int unusable;
  const int experts = a.layer[l].experts, top_k = a.layer[l].top_k;
  const int32_t* const expert = a.expert + l * a.stride;
  const float* const weight = a.weight + l * a.stride;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) count[e] = 0;
  if (threadIdx.x == 0) unusable = 0;
  __syncthreads();
  const int tokens = *a.live;
  constexpr int kTogether = 4;  // picks of a thread that are on their way at once
  for (int i = threadIdx.x; i < tokens * top_k; i += kTogether * blockDim.x) {
    int picked[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int at = i + j * static_cast<int>(blockDim.x);
      picked[j] = at < tokens * top_k ? expert[at] : -1;
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (picked[j] >= 0) atomicAdd(&count[picked[j]], 1);
    }
  }
  for (int t = threadIdx.x; t < tokens; t += blockDim.x) {
    if (is_unusable(expert + int64_t{t} * top_k, weight + int64_t{t} * top_k, top_k)) {
      atomicAdd(&unusable, 1);
    }
  }
  __syncthreads();
  int32_t* const to = slot + a.layout.count + l * a.layout.room;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) to[e] = count[e];
  if (threadIdx.x == 0) slot[a.layout.unusable + l] = unusable;
}

__global__ void publish_kernel(PublishStep a) {
  let_next_begin();
  wait_for_previous();
  const uint32_t turn = *a.turn;
  int32_t* const slot = a.slots + turn % kMailSlots * a.layout.end;
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < a.rows; i += blockDim.x) slot[a.layout.pick + i] = a.pick[i];
    if (a.guesses != nullptr && threadIdx.x < 2) {
      slot[ResultLayout::kGuesses + threadIdx.x] = static_cast<int32_t>(a.guesses[threadIdx.x]);
    }
  }
  if (a.layers > 0) count_layer(a, static_cast<int>(blockIdx.x), slot);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (atomicAdd(a.turn + 1, 1u) != gridDim.x - 1) return;
  __threadfence_system();
  a.turn[1] = 0;
  a.turn[0] = turn + 1;
  *reinterpret_cast<volatile uint32_t*>(slot + ResultLayout::kTurn) = turn + 1;
}

}  // namespace

void begin_step(const BeginStep& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const bool wide = args.dtype == DType::f32;
  const bool at_once = args.advances || args.tokens <= kFewTokens;
  const auto given = wide ? begin_kernel<float, false> : begin_kernel<bf16, false>;
  const auto ahead = wide ? begin_kernel<float, true> : begin_kernel<bf16, true>;
  const auto kernel = !at_once ? begin_arrays_kernel : args.advances ? ahead : given;
  // As all launches of the chain want it: see launch_chained().
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  if (at_once) {
    kernel<<<grid_of(args.tokens, 1), kBeginThreads, 0, stream>>>(args);
    return;
  }
  kernel<<<grid_of(args.layout.end / 4, kCopyThreads), kCopyThreads, 0, stream>>>(args);
  launch_chained(wide ? begin_rows_kernel<float> : begin_rows_kernel<bf16>,
                 dim3(grid_of(args.tokens, 1)), kEmbedThreads, 0, stream, args);
}

void publish_step(const PublishStep& args, StreamHandle stream) noexcept {
  const auto blocks = static_cast<unsigned>(args.layers > 0 ? args.layers : 1);
  // Many tokens want all threads; few are quicker with few.
  const unsigned threads = args.stride > 1024 ? 1024 : 256;
  launch_chained(publish_kernel, dim3(blocks), threads,
                 static_cast<size_t>(args.layout.room) * sizeof(int), stream, args);
}

}  // namespace switchyard::cuda
