// SPDX-License-Identifier: Apache-2.0
// Largest logit, penalties and masks of each row (step_sample.h); the draw is step_draw.cuh.
//
//   scan    kChunks blocks a row: the best (logit, lowest token) of each part; the block that comes last joins them. The first
//           scan also looks for NaN and infinity, before masks put minus infinity there on purpose
//   adjust  one block a row: the sequence's tokens by their penalties, then masks; and another scan
//   draw    one block a row, where the temperature is above 0
// Bound by reading the logits once: 4 V bytes a row.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/step_draw.cuh"
#include "kernels/cuda/step_sample.h"

namespace switchyard::cuda {
namespace {

constexpr int kChunks = 32, kScanThreads = 256, kAdjustThreads = 256;

// The workspace holds one for each row; a row's place does not depend on how many there are.
struct RowState {
  unsigned long long part[kChunks];
  unsigned long long best;  // key of the logit, then the inverse of the token
  uint32_t count, bad;      // chunks that are done, NaN or infinity seen; zero between scans
};
__device__ __forceinline__ RowState& state_of(const Sample& a, unsigned row) {
  return static_cast<RowState*>(a.workspace)[row];
}

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}
__device__ unsigned long long warp_largest(unsigned long long v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    v = larger(v, __shfl_xor_sync(kAllLanes, v, offset));
  }
  return v;
}

// By thread 0 of the block that came last: the row's result, and counters as they were.
__device__ void join_parts(const Sample& a, unsigned row, bool first) {
  RowState& state = state_of(a, row);
  unsigned long long best = 0;
  for (int i = 0; i < kChunks; ++i) best = larger(best, __ldcg(state.part + i));
  state.best = best;
  state.count = 0;
  const bool bad = first ? atomicExch(&state.bad, 0u) != 0 : a.pick[row] == Sample::kNonFinite;
  a.pick[row] = bad ? Sample::kNonFinite : static_cast<int32_t>(~static_cast<uint32_t>(best));
}

__global__ void __launch_bounds__(kScanThreads) scan_kernel(Sample a, bool first) {
  __shared__ unsigned long long warps[kScanThreads / 32];
  let_next_begin();
  wait_for_previous();
  const unsigned row = blockIdx.y, chunk = blockIdx.x;
  const float* logits = a.logits + row * a.vocab;
  const int64_t begin = a.vocab * chunk / kChunks, end = a.vocab * (chunk + 1) / kChunks;
  unsigned long long best = 0;
  bool bad = false;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kScanThreads) {
    const float logit = logits[i];
    bad |= (__float_as_uint(logit) & 0x7f800000u) == 0x7f800000u;
    best = larger(best, sort_key(logit, static_cast<int32_t>(i)));
  }
  best = warp_largest(best);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  const bool any_bad = __syncthreads_or(static_cast<int>(bad)) != 0;
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kScanThreads / 32; ++i) best = larger(best, warps[i]);
  RowState& state = state_of(a, row);
  state.part[chunk] = best;
  if (first && any_bad) atomicOr(&state.bad, 1u);
  __threadfence();
  if (atomicAdd(&state.count, 1u) != kChunks - 1) return;
  __threadfence();
  join_parts(a, row, first);
}

__device__ float clamp_finite(float logit) {
  constexpr float kMost = 3.402823466e38f;
  return fminf(fmaxf(logit, -kMost), kMost);
}

// Each operation rounds on its own, as on the host.
__device__ float penalized(const SampleRow& row, float logit, uint32_t in_output) {
  if (row.repetition != 1.0f) {
    logit = clamp_finite(logit > 0 ? __fdiv_rn(logit, row.repetition)
                                   : __fmul_rn(logit, row.repetition));
  }
  if (in_output == 0 || (row.presence == 0.0f && row.frequency == 0.0f)) return logit;
  const float times = __fmul_rn(row.frequency, static_cast<float>(in_output));
  return clamp_finite(__fsub_rn(__fsub_rn(logit, row.presence), times));
}

__global__ void __launch_bounds__(kAdjustThreads) adjust_kernel(Sample a) {
  const SampleRow row = a.row[blockIdx.x];
  float* logits = a.logits + blockIdx.x * a.vocab;
  for (int i = threadIdx.x; i < row.num_seen; i += kAdjustThreads) {
    const SeenToken seen = a.seen[row.first_seen + i];
    logits[seen.token] = penalized(row, logits[seen.token], seen.in_output);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < row.num_masked; i += kAdjustThreads) {
    logits[a.masked[row.first_masked + i]] = -INFINITY;
  }
}

__global__ void __launch_bounds__(kDrawThreads) draw_kernel(Sample a) {
  __shared__ DrawShared shared;
  const SampleRow row = a.row[blockIdx.x];
  if (row.temperature == 0.0f || a.pick[blockIdx.x] == Sample::kNonFinite) return;
  const auto largest = static_cast<uint32_t>(state_of(a, blockIdx.x).best >> 32);
  const Weigher weigh(row, key_value(largest));
  const float* logits = a.logits + blockIdx.x * a.vocab;
  const bool selects = (row.top_k > 0 && row.top_k < a.vocab) || row.top_p < 1.0f;
  const int token = selects ? draw_best(row, weigh, logits, a.vocab, largest, shared)
                            : draw_all(row, weigh, logits, a.vocab, shared);
  if (threadIdx.x == 0) a.pick[blockIdx.x] = token;
}

}  // namespace

int64_t sample_workspace(int rows) noexcept {
  return int64_t{rows} * static_cast<int64_t>(sizeof(RowState));
}

void sample(const Sample& args, CUstream_st* stream) noexcept {
  if (args.rows == 0) return;
  const auto rows = static_cast<unsigned>(args.rows);
  launch_chained(scan_kernel, dim3(kChunks, rows), kScanThreads, 0, stream, args, true);
  if (args.adjusts) {
    adjust_kernel<<<rows, kAdjustThreads, 0, stream>>>(args);
    launch_chained(scan_kernel, dim3(kChunks, rows), kScanThreads, 0, stream, args, false);
  }
  if (args.draws) draw_kernel<<<rows, kDrawThreads, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
