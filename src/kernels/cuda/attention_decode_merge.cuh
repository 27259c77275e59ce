// SPDX-License-Identifier: Apache-2.0
// The end of a decode item: its states become one and join its piece's, and the pieces of a token become its result. All in a fixed
// order, by kWarps warps: the `warp`-th has every kWarps-th head.
#pragma once
#include "kernels/cuda/attention_decode_math.cuh"

namespace switchyard::cuda {

/// What an item leaves, each state with its sum of weights in so many parts; rows are padded so that no two lanes that store
/// meet in a bank.
template <int kZ, int kStates, int kSums>
struct SharedStates {
  alignas(16) float o[kStates][kTileHeads][kZ + 4];
  float highest[kStates][kTileHeads], total[kStates][kSums][kTileHeads];
  DecodeItem item;
};

template <int kZ, int kWarps>
__device__ __forceinline__ void share_state(const DecodeState<kZ>& state, int heads,
                                            SharedStates<kZ, kWarps, 1>& shared) {
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
      shared.total[warp][0][head] = total;
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

/// Joins another to this; one of them at least is of some keys. Spelled out, so that its bits are the same wherever it is used.
__device__ __forceinline__ void join(Quarter& to, const Quarter& from) {
  const float most = fmaxf(to.highest, from.highest);
  const float shrink = exp2_fast(to.highest - most), weight = exp2_fast(from.highest - most);
  const auto sum = [&](float a, float b) { return __fmaf_rn(b, weight, __fmul_rn(a, shrink)); };
  to.value = make_float4(sum(to.value.x, from.value.x), sum(to.value.y, from.value.y),
                         sum(to.value.z, from.value.z), sum(to.value.w, from.value.w));
  to.total = sum(to.total, from.total);
  to.highest = most;
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

/// The heads of a tile in groups of four z, shared out to kWarps warps: a lane has kEach groups.
template <int kZ, int kWarps>
struct Quads {
  static constexpr int kEach = kTileHeads * kZ / 4 / kWarps / kWarp;
  /// Runs `each(i, head, z)` for the groups of a lane of the `warp`-th warp.
  template <class Each>
  static __device__ __forceinline__ void run(int heads, int warp, const Each& each) {
    static_assert(kEach >= 1);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int quad = static_cast<int>(threadIdx.x) % kWarp + i * kWarp;
      const int head = warp + quad / (kZ / 4) * kWarps;
      if (head < heads) each(i, head, quad % (kZ / 4) * 4);
    }
  }
};

template <int kZ, int kStates, int kSums>
__device__ __forceinline__ Quarter read_state(const SharedStates<kZ, kStates, kSums>& shared, int i,
                                              int head, int z) {
  float total = shared.total[i][0][head];
#pragma unroll
  for (int j = 1; j < kSums; ++j) total += shared.total[i][j][head];
  return {*reinterpret_cast<const float4*>(&shared.o[i][head][z]), shared.highest[i][head], total};
}

/// Joins the states of an item to what its piece has so far; at its end to the result, or to the piece's partial one.
template <int kZ, int kWarps, int kStates, int kSums>
__device__ __forceinline__ void merge_states(const Attend& a, const DecodeItem& item,
                                             const SharedStates<kZ, kStates, kSums>& shared,
                                             int warp, Quarter (&piece)[Quads<kZ, kWarps>::kEach]) {
  float* const to = partial_of(a, item.index);
  Quads<kZ, kWarps>::run(item.heads, warp, [&](int i, int head, int z) {
    Quarter all = read_state(shared, 0, head, z);
#pragma unroll
    for (int s = 1; s < kStates; ++s) join(all, read_state(shared, s, head, z));
    if (item.begins) piece[i] = {};
    join(piece[i], all);
    if (!item.ends) return;
    if (item.pieces == 1) {
      write_out<kZ>(a, item, head, z, piece[i]);
      return;
    }
    *reinterpret_cast<float4*>(to + head * kZ + z) = piece[i].value;
    if (z == 0) {
      *reinterpret_cast<float2*>(to + most_tile_heads(a) * kZ + head * 2) =
          make_float2(piece[i].highest, piece[i].total);
    }
  });
}

/// Four z of a head of a partial result; see partial_of. Others of this launch wrote it.
template <int kZ>
__device__ __forceinline__ Quarter read_partial(const Attend& a, const float* from, int head,
                                                int z) {
  const float4 value = __ldcg(reinterpret_cast<const float4*>(from + head * kZ + z));
  const float2 sums =
      __ldcg(reinterpret_cast<const float2*>(from + most_tile_heads(a) * kZ + head * 2));
  return {value, sums.x, sums.y};
}

/// Joins the first `count` of some pieces of `spans` spans to what comes before them; an even number does.
template <int kPieces>
__device__ __forceinline__ void join_pieces(Quarter& to, Quarter (&part)[kPieces], int count,
                                            int spans) {
#pragma unroll
  for (int j = 0; j < kPieces; j += 2) {
    const bool one = j < count, two = j + 1 < count;
    if (two && spans == 1) join(part[j], part[j + 1]);  // a pair
    if (one) join(to, part[j]);
    if (two && spans == 2) join(to, part[j + 1]);
  }
}

/// All pieces of a token, each of `spans` spans, to the result. A lane has kGroups groups of four z, and kPieces pieces of each, on
/// their way at once.
template <int kZ, int kWarps, int kGroups, int kPieces>
__device__ __forceinline__ void merge_groups(const Attend& a, const DecodeItem& item, int spans,
                                             int warp, int quads) {
  constexpr int kQuads = kZ / 4;
  const int64_t step = partial_size(a) * a.kv_heads * head_tiles(a);
  const float* const first = partial_of(a, item.index) - item.piece * step;
  const auto head = [&](int quad) { return warp + quad / kQuads * kWarps; };
#pragma unroll 1
  for (int quad = threadIdx.x % kWarp; quad < quads; quad += kGroups * kWarp) {
    Quarter all[kGroups];
#pragma unroll 1
    for (int p = 0; p < item.pieces; p += kPieces) {
      Quarter part[kGroups][kPieces];
#pragma unroll
      for (int i = 0; i < kGroups * kPieces; ++i) {
        const int own = min(quad + i / kPieces * kWarp, quads - 1);
        const float* from = first + min(p + i % kPieces, item.pieces - 1) * step;
        part[i / kPieces][i % kPieces] = read_partial<kZ>(a, from, head(own), own % kQuads * 4);
      }
#pragma unroll
      for (int i = 0; i < kGroups; ++i) join_pieces(all[i], part[i], item.pieces - p, spans);
    }
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int own = quad + i * kWarp;
      if (own < quads) write_out<kZ>(a, item, head(own), own % kQuads * 4, all[i]);
    }
  }
}

template <int kZ, int kWarps>
__device__ __forceinline__ void merge_pieces(const Attend& a, const DecodeItem& item, int spans,
                                             int warp) {
  const int quads = (item.heads - warp + kWarps - 1) / kWarps * (kZ / 4);
  if (quads > kWarp && item.pieces <= 4) {
    merge_groups<kZ, kWarps, 2, 4>(a, item, spans, warp, quads);
  } else {
    merge_groups<kZ, kWarps, 1, 8>(a, item, spans, warp, quads);
  }
}

/// One thread, after a barrier with all that wrote the piece: whether it is the last of its token's to come; what the others wrote
/// is then visible to all that this thread meets in a barrier. Under load the fence takes longer than most of an item.
__device__ __forceinline__ bool is_last_piece(const Attend& a, const DecodeItem& item) {
  int32_t* counter = counter_of(a, item);
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  if (before != item.pieces - 1) return false;
  *counter = 0;  // fit for the next launch
  return true;
}

}  // namespace switchyard::cuda
