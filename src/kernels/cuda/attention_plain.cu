// SPDX-License-Identifier: Apache-2.0
// Attention of any shape: one warp for one query head of one token, an online softmax over one key at a time. What runs in
// f32, and where the fast kernels refuse. Source: Milakov and Gimelshein 2018, arXiv 1805.02867.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kLaneValues = 16;  // of a head: up to 512 wide

// The sequence that owns token t.
__device__ int sequence_of(const Attend& a, int64_t t) {
  int low = 0, high = a.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (a.seq_offset[middle] <= t) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) plain_kernel(Attend a) {
  const int64_t t = blockIdx.y;
  const int lane = threadIdx.x % kWarp, head = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (head >= a.heads) return;
  const int width = a.head_dim, g = head / (a.heads / a.kv_heads), b = sequence_of(a, t);
  const int32_t* table = a.block_table + int64_t{b} * a.max_blocks;
  const int position = a.context_len[b] + static_cast<int>(t) - a.seq_offset[b];
  const int first = a.window > 0 && position - a.window + 1 > 0 ? position - a.window + 1 : 0;
  const T* q = static_cast<const T*>(a.q) + (t * a.heads + head) * width;
  float query[kLaneValues], out[kLaneValues] = {};
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int z = i * kWarp + lane;
    query[i] = z < width ? to_f32(q[z]) : 0.0f;
  }
  float highest = -INFINITY, total = 0;
  for (int j = first; j <= position; ++j) {
    const int64_t at = ((int64_t{table[j / a.block_tokens]} * a.kv_heads + g) * a.block_tokens +
                        j % a.block_tokens) *
                       width;
    const T* k = static_cast<const T*>(a.k_cache) + at;
    const T* v = static_cast<const T*>(a.v_cache) + at;
    float score = 0;
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) {
      const int z = i * kWarp + lane;
      if (z < width) score += query[i] * to_f32(k[z]);
    }
    score = warp_sum(score) * a.scale;
    const float next = fmaxf(highest, score);
    const float shrink = expf(highest - next), weight = expf(score - next);
    total = total * shrink + weight;
    highest = next;
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) {
      const int z = i * kWarp + lane;
      if (z < width) out[i] = out[i] * shrink + weight * to_f32(v[z]);
    }
  }
  T* to = static_cast<T*>(a.out) + (t * a.heads + head) * width;
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int z = i * kWarp + lane;
    if (z < width) to[z] = from_f32<T>(out[i] / total);
  }
}

}  // namespace

void attend_plain(const Attend& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>((args.heads + kWarps - 1) / kWarps),
                  static_cast<unsigned>(args.tokens));
  const auto kernel = args.dtype == DType::f32 ? plain_kernel<float> : plain_kernel<bf16>;
  kernel<<<grid, kWarps * kWarp, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
