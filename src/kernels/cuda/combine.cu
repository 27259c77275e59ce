// SPDX-License-Identifier: Apache-2.0
// Combine: the weighted sum of a token's expert rows, in f32 and in the order of its picks, onto the residual stream;
// and, if wanted, the RMS norm that the next layer reads, while the row is still in registers.
//
//   one block a token, 8 columns a thread at a time; rows [R, D] bf16, y [T, D] f32
//   left  rows and hidden rows are not read again: their lines are let go of, or the L2 would write them to memory in the midst of the
//         next weights, which takes several times as long as their bytes
//   cost  K rows of 2 D bytes read, 8 D bytes of y, 2 D written with the norm
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kColumns = 8;  // of a thread at a time
constexpr int kMaxThreads = 512;
constexpr int kMaxStrips = 4;  // of a thread: D <= 512 * 8 * 4; most widths need one

struct Floats8 {
  float value[kColumns];
};

__device__ __forceinline__ Floats8 load_floats(const float* from) {
  Floats8 to;
  reinterpret_cast<float4*>(to.value)[0] = reinterpret_cast<const float4*>(from)[0];
  reinterpret_cast<float4*>(to.value)[1] = reinterpret_cast<const float4*>(from)[1];
  return to;
}
__device__ __forceinline__ void store_floats(const Floats8& from, float* to) {
  reinterpret_cast<float4*>(to)[0] = reinterpret_cast<const float4*>(from.value)[0];
  reinterpret_cast<float4*>(to)[1] = reinterpret_cast<const float4*>(from.value)[1];
}
__device__ __forceinline__ void add_scaled(Floats8& sum, float weight, const uint4& row) {
  const uint32_t pair[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum.value[2 * i] = fmaf(weight, low_bf16(pair[i]), sum.value[2 * i]);
    sum.value[2 * i + 1] = fmaf(weight, high_bf16(pair[i]), sum.value[2 * i + 1]);
  }
}

// A token's picks, in shared memory. A pick without a row weighs nothing.
struct Picks {
  int32_t row[MoeRoute::kMaxTopK];
  float weight[MoeRoute::kMaxTopK];

  __device__ void load(const DeviceRouting& routing, int64_t t, int top_k) {
    const int k = static_cast<int>(threadIdx.x);
    if (k >= top_k) return;
    row[k] = routing.pick_row[t * top_k + k];
    weight[k] = row[k] < 0 ? 0.0f : routing.weight[t * top_k + k];
  }
};

constexpr int kAtOnce = 8;  // rows of a token that are asked for at once

// Lets go of the lines that this thread and its seven neighbours have read of the picks from `first` on, one each.
__device__ __forceinline__ void let_rows_go(const Picks& picks, const bf16* rows, int64_t width,
                                            int top_k, int first, int64_t column) {
  constexpr int kReaders = kLineBytes / sizeof(uint4), kLineColumns = kReaders * kColumns;
  static_assert(kReaders == kAtOnce, "a line for each of the rows that have been read");
  const int lane = static_cast<int>(threadIdx.x) % 32, mine = first + lane % kReaders;
  __syncwarp(0xffu << lane / kReaders * kReaders);
  const int row = mine < top_k ? picks.row[mine] : -1;
  if (row >= 0) let_line_go(rows + row * width + column / kLineColumns * kLineColumns);
}

// What is added to 8 values of y[t] from `column` on. Rows are asked for kAtOnce at a time.
__device__ Floats8 expert_sum(const MoeFfn::Args& args, const Picks& picks, const bf16* rows,
                              bool let_go, int64_t width, int top_k, int64_t t, int64_t column) {
  Floats8 sum = {};
  for (int first = 0; first < top_k; first += kAtOnce) {
    uint4 value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = first + i < top_k ? picks.row[first + i] : -1;
      value[i] = make_uint4(0, 0, 0, 0);
      if (row >= 0) value[i] = *reinterpret_cast<const uint4*>(rows + row * width + column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < top_k) add_scaled(sum, picks.weight[first + i], value[i]);
    }
    if (let_go) let_rows_go(picks, rows, width, top_k, first, column);
  }
  if (args.shared == nullptr) return sum;
  const float weight = args.shared_weight != nullptr ? args.shared_weight[t] : 1.0f;
  const Floats8 shared = load_floats(args.shared + t * width + column);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum.value[i] = fmaf(weight, shared.value[i], sum.value[i]);
  return sum;
}

// The sum over the block, in all threads.
__device__ float block_sum(float value) {
  __shared__ float warp_sums[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  if (lane == 0) warp_sums[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / 32 ? warp_sums[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__device__ void store_normed(const MoeFfn::Args& args, const Floats8& y, float inverse, int64_t at,
                             int64_t column) {
  const Floats8 weight = load_floats(args.next_norm + column);
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pair[i] = pack_bf16(y.value[2 * i] * inverse * weight.value[2 * i],
                        y.value[2 * i + 1] * inverse * weight.value[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(static_cast<bf16*>(args.next_x) + at) =
      make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

// This block's share of the hidden rows.
__device__ __forceinline__ void let_hidden_go(const ExpertRows& from) {
  const unsigned lines = from.used_bytes / kLineBytes;  // of a panel
  const unsigned threads = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < from.panels * lines; i += threads) {
    const unsigned panel = i / lines, line = i - panel * lines;
    let_line_go(static_cast<const char*>(from.hidden) + panel * from.panel_bytes +
                line * kLineBytes);
  }
}

// This thread's columns of strip s.
__device__ __forceinline__ int64_t column_of(int s) {
  return (static_cast<int64_t>(s) * blockDim.x + threadIdx.x) * kColumns;
}

// Each thread owns kStrips strips of 8 columns. kSum false: y is complete, only the norm is left. With a sum, the launch before
// makes `rows` alone: the picks and y are older and are read while it ends.
template <bool kSum, int kStrips>
__global__ void __launch_bounds__(kMaxThreads, kStrips == 1 ? 2 : 1)
    combine_tokens(MoeFfn::Args args, ExpertRows from, int64_t width, int top_k) {
  __shared__ Picks picks;
  let_next_begin();
  const int64_t t = blockIdx.x;
  Floats8 y[kStrips] = {};
  const auto load_y = [&] {
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      if (column_of(s) < width) y[s] = load_floats(args.y + t * width + column_of(s));
    }
  };
  if constexpr (kSum) {
    picks.load(args.routing, t, top_k);
    load_y();
    __syncthreads();
  }
  wait_for_previous();
  if constexpr (!kSum) load_y();
  const bf16* const rows = static_cast<const bf16*>(from.rows);
  float squares = 0;
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    const int64_t column = column_of(s);
    if (column >= width) break;
    if constexpr (kSum) {
      const Floats8 sum = expert_sum(args, picks, rows, from.let_go, width, top_k, t, column);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        y[s].value[i] = fmaf(args.scale, sum.value[i], y[s].value[i]);
      }
      store_floats(y[s], args.y + t * width + column);
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares = fmaf(y[s].value[i], y[s].value[i], squares);
  }
  if constexpr (kSum) let_hidden_go(from);
  if (args.next_x == nullptr) return;
  const float mean = block_sum(squares) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + args.next_epsilon);
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    const int64_t column = column_of(s);
    if (column < width) store_normed(args, y[s], inverse, t * width + column, column);
  }
}

unsigned threads_of(int64_t width) noexcept {
  const int64_t threads = (width / kColumns + 31) / 32 * 32;
  return static_cast<unsigned>(threads < kMaxThreads ? threads : kMaxThreads);
}

template <bool kSum>
void launch(const MoeFfn::Problem& problem, const MoeFfn::Args& args, const ExpertRows& from,
            void* stream) noexcept {
  const bool one = problem.width <= kMaxThreads * kColumns;
  launch_chained(one ? combine_tokens<kSum, 1> : combine_tokens<kSum, kMaxStrips>,
                 dim3(static_cast<unsigned>(args.tokens)), threads_of(problem.width), 0,
                 static_cast<cudaStream_t>(stream), args, from, problem.width, problem.rule.top_k);
}

}  // namespace

void launch_combine(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                    const ExpertRows& from, void* stream) noexcept {
  if (args.tokens == 0) return;
  launch<true>(problem, args, from, stream);
}

void launch_next_norm(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                      void* stream) noexcept {
  if (args.tokens == 0 || args.next_x == nullptr) return;
  launch<false>(problem, args, {}, stream);
}

}  // namespace switchyard::cuda
