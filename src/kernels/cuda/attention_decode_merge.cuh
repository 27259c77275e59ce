// SPDX-License-Identifier: Apache-2.0
// The end of a decode item: the warps' states become one, and the spans of a token become its result. Both in a fixed order.
#pragma once
#include "kernels/cuda/attention_decode_math.cuh"

namespace switchyard::cuda {

inline constexpr int kMergeThreads = 128;  ///< they merge an item together

/// What the warps of an item leave; rows are padded so that no two lanes that store meet in a bank.
template <int kZ, int kWarps>
struct SharedStates {
  alignas(16) float o[kWarps][kTileHeads][kZ + 4];
  float highest[kWarps][kTileHeads], total[kWarps][kTileHeads];
  DecodeItem item;
};

/// The merging threads meet.
__device__ __forceinline__ void merge_barrier() { named_barrier(1, kMergeThreads); }

template <int kZ, int kWarps>
__device__ __forceinline__ void share_state(const DecodeState<kZ>& state, int heads,
                                            SharedStates<kZ, kWarps>& shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = quad * 2 + i;
    float total = state.total[i];
#pragma unroll
    for (int offset = 4; offset < kWarp; offset <<= 1) {
      total += __shfl_xor_sync(kAllLanes, total, offset);
    }
    if (head >= heads) continue;
    if (group == 0) {
      shared.highest[warp][head] = state.highest[i];
      shared.total[warp][head] = total;
    }
#pragma unroll
    for (int t = 0; t < kZ / 16; ++t) {
      shared.o[warp][head][t * 16 + group] = state.o[t][i];
      shared.o[warp][head][t * 16 + group + 8] = state.o[t][i + 2];
    }
  }
}

/// Four values of a head over some keys: weighed sums, the highest score, the sum of weights.
struct Quarter {
  float4 value = make_float4(0, 0, 0, 0);
  float highest = -INFINITY, total = 0;
};

/// Joins others to this, in their order.
template <int kCount>
__device__ __forceinline__ void join(Quarter& to, const float (&highest)[kCount],
                                     const float (&total)[kCount], const float4 (&value)[kCount]) {
  float most = to.highest;
#pragma unroll
  for (int i = 0; i < kCount; ++i) most = fmaxf(most, highest[i]);
  const float shrink = exp2_fast(to.highest - most);
  to = {{to.value.x * shrink, to.value.y * shrink, to.value.z * shrink, to.value.w * shrink},
        most,
        to.total * shrink};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float weight = exp2_fast(highest[i] - most);
    to.total += total[i] * weight;
    to.value.x += value[i].x * weight;
    to.value.y += value[i].y * weight;
    to.value.z += value[i].z * weight;
    to.value.w += value[i].w * weight;
  }
}

template <int kZ>
__device__ __forceinline__ void write_out(const Attend& a, const DecodeItem& item, int head, int z,
                                          const Quarter& result) {
  const float inverse = 1.0f / result.total;
  const float4& v = result.value;
  auto* to = static_cast<bf16*>(a.out) + (first_head(a, item) + head) * kZ + z;
  *reinterpret_cast<uint2*>(to) =
      make_uint2(pack_bf16(v.x * inverse, v.y * inverse), pack_bf16(v.z * inverse, v.w * inverse));
}

/// The warps' states to the result, or to the span's partial one.
template <int kZ, int kWarps>
__device__ __forceinline__ void merge_warps(const Attend& a, const DecodeItem& item,
                                            const SharedStates<kZ, kWarps>& shared, int thread) {
  for (int i = thread; i < item.heads * (kZ / 4); i += kMergeThreads) {
    const int head = i / (kZ / 4), z = i % (kZ / 4) * 4;
    float highest[kWarps], total[kWarps];
    float4 value[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      highest[w] = shared.highest[w][head];
      total[w] = shared.total[w][head];
      value[w] = *reinterpret_cast<const float4*>(&shared.o[w][head][z]);
    }
    Quarter all{.highest = highest[0]};  // the first warp has a tile, and so a highest score
    join<kWarps>(all, highest, total, value);
    if (item.spans == 1) {
      write_out<kZ>(a, item, head, z, all);
      continue;
    }
    float* to = partial_of<kZ>(a, item.index, head);
    *reinterpret_cast<float4*>(to + 4 + z) = all.value;
    if (z == 0) *reinterpret_cast<float2*>(to) = make_float2(all.highest, all.total);
  }
}

/// Whether this item is the last of a token's spans to come; what the others wrote is then visible.
__device__ __forceinline__ bool is_last_span(const Attend& a, const DecodeItem& item, int thread,
                                             int& last) {
  merge_barrier();
  if (thread == 0) {
    int32_t* counter = counter_of(a, item);
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    last = before == item.spans - 1 ? 1 : 0;
    if (last != 0) *counter = 0;  // fit for the next launch
  }
  merge_barrier();
  return last != 0;
}

/// All spans of a token to the result.
template <int kZ>
__device__ __forceinline__ void merge_spans(const Attend& a, const DecodeItem& item, int thread) {
  constexpr int kAtOnce = 8;
  const int step = a.kv_heads * head_tiles(a), first = item.index - item.span * step;
  for (int i = thread; i < item.heads * (kZ / 4); i += kMergeThreads) {
    const int head = i / (kZ / 4), z = i % (kZ / 4) * 4;
    Quarter all{.highest = __ldcg(partial_of<kZ>(a, first, head))};
    for (int s = 0; s < item.spans; s += kAtOnce) {
      float highest[kAtOnce], total[kAtOnce];
      float4 value[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool real = s + j < item.spans;
        const float* from = partial_of<kZ>(a, first + (real ? s + j : 0) * step, head);
        const float2 sums = __ldcg(reinterpret_cast<const float2*>(from));
        highest[j] = real ? sums.x : -INFINITY;
        total[j] = sums.y;
        value[j] = __ldcg(reinterpret_cast<const float4*>(from + 4 + z));
      }
      join<kAtOnce>(all, highest, total, value);
    }
    write_out<kZ>(a, item, head, z, all);
  }
}

}  // namespace switchyard::cuda
