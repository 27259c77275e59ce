// SPDX-License-Identifier: Apache-2.0
// The end of a decode item: the warps' states become one, and the spans of a token become its result. Both in a fixed order, by
// `warps` warps: the `warp`-th has every `warps`-th head.
#pragma once
#include "kernels/cuda/attention_decode_math.cuh"

namespace switchyard::cuda {

/// What the warps of an item leave; rows are padded so that no two lanes that store meet in a bank.
template <int kZ, int kWarps>
struct SharedStates {
  alignas(16) float o[kWarps][kTileHeads][kZ + 4];
  float highest[kWarps][kTileHeads], total[kWarps][kTileHeads];
  DecodeItem item;
};

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

/// Four values of a head over some keys: weighed sums, the highest score, the sum of weights. At first over none.
struct Quarter {
  float4 value = make_float4(0, 0, 0, 0);
  float highest = -INFINITY, total = 0;
};

/// Joins others to this, in their order; one of them at least is of some keys.
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

/// Runs `each(head, z)` for the groups of four z of this warp's heads.
template <int kZ, class Each>
__device__ __forceinline__ void for_own_quads(const DecodeItem& item, int warp, int warps,
                                              const Each& each) {
  const int heads = (item.heads - warp + warps - 1) / warps;
  for (int i = threadIdx.x % kWarp; i < heads * (kZ / 4); i += kWarp) {
    each(warp + i / (kZ / 4) * warps, i % (kZ / 4) * 4);
  }
}

/// The warps' states to the result, or to the span's partial one.
template <int kZ, int kWarps>
__device__ __forceinline__ void merge_warps(const Attend& a, const DecodeItem& item,
                                            const SharedStates<kZ, kWarps>& shared, int warp,
                                            int warps) {
  for_own_quads<kZ>(item, warp, warps, [&](int head, int z) {
    float highest[kWarps], total[kWarps];
    float4 value[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      highest[w] = shared.highest[w][head];
      total[w] = shared.total[w][head];
      value[w] = *reinterpret_cast<const float4*>(&shared.o[w][head][z]);
    }
    Quarter all;
    join<kWarps>(all, highest, total, value);
    if (item.spans == 1) {
      write_out<kZ>(a, item, head, z, all);
      return;
    }
    float* to = partial_of<kZ>(a, item.index, head);
    *reinterpret_cast<float4*>(to + 4 + z) = all.value;
    if (z == 0) *reinterpret_cast<float2*>(to) = make_float2(all.highest, all.total);
  });
}

/// All spans of a token to the result.
template <int kZ>
__device__ __forceinline__ void merge_spans(const Attend& a, const DecodeItem& item, int warp,
                                            int warps) {
  constexpr int kAtOnce = 10;
  const int step = a.kv_heads * head_tiles(a), first = item.index - item.span * step;
  for_own_quads<kZ>(item, warp, warps, [&](int head, int z) {
    Quarter all;
    for (int s = 0; s < item.spans; s += kAtOnce) {
      float highest[kAtOnce], total[kAtOnce];
      float4 value[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool real = s + j < item.spans;
        const float* from = partial_of<kZ>(a, first + (s + j) * step, head);
        const float2 sums =
            real ? __ldcg(reinterpret_cast<const float2*>(from)) : make_float2(-INFINITY, 0);
        highest[j] = sums.x;
        total[j] = sums.y;
        value[j] =
            real ? __ldcg(reinterpret_cast<const float4*>(from + 4 + z)) : make_float4(0, 0, 0, 0);
      }
      join<kAtOnce>(all, highest, total, value);
    }
    write_out<kZ>(a, item, head, z, all);
  });
}

/// One thread, after a barrier with all that wrote the span: whether it is the last of its token's to come; what the others wrote
/// is then visible to all that this thread meets in a barrier. Under load the fence takes longer than most of an item.
__device__ __forceinline__ bool is_last_span(const Attend& a, const DecodeItem& item) {
  int32_t* counter = counter_of(a, item);
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  if (before != item.spans - 1) return false;
  *counter = 0;  // fit for the next launch
  return true;
}

}  // namespace switchyard::cuda
