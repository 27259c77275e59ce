// SPDX-License-Identifier: Apache-2.0
// The consumers of prefill attention on Hopper: one or two groups of four warps, 64 rows each, through all tiles of an item.
//
//   S [64, 128] = Q K^T      wgmma, both operands in shared memory
//   P = exp2(S - highest)    in registers, where it becomes the left operand of
//   O [64, Z] += P V         wgmma; under way while the next tile's softmax is computed
// Two groups take turns in queueing their products, so that one computes softmax while the other's products run. A thread
// (lane 4 g + q of warp w) holds rows 16 w + g (r = 0) and + 8 (r = 1): elements 4 j + 2 r and the next are columns 8 j + 2 q
// and the next.
#pragma once
#include "kernels/cuda/attention_prefill_sm90a_load.cuh"
#include "kernels/cuda/wgmma_attention.cuh"

namespace switchyard::cuda {

/// The softmax of a thread's two rows over the tiles so far.
template <int kZ>
struct RowState {
  float o[kZ / 2] = {};
  float highest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  ///< of this thread's columns
};

/// Positions that a row sees: [low, high].
struct RowSpan {
  int low, high;
};

__device__ __forceinline__ RowSpan row_span(const Attend& a, const PrefillItem& item, int row) {
  const int token = min((item.row + row) / (a.heads / a.kv_heads), item.tokens - 1);
  const int position = item.context + token;
  return {a.window > 0 ? position - a.window + 1 : 0, position};
}

template <class TileT>
__device__ __forceinline__ void start_scores(float (&s)[64], uint32_t queries, uint32_t keys) {
  const uint64_t q = wgmma_operand(queries), k = wgmma_operand(keys);
#pragma unroll
  for (int t = 0; t < TileT::kZ / 16; ++t) {
    const int q_at = t / 4 * (TileT::kQueryPanelBytes >> 4) + t % 4 * 2;
    const int k_at = t / 4 * (kPanelBytes >> 4) + t % 4 * 2;
    if (t == 0) {
      wgmma_scores<false>(s, q, k);
    } else {
      wgmma_scores<true>(s, q + q_at, k + k_at);
    }
  }
  wgmma_commit();
}

template <int kZ>
__device__ __forceinline__ void start_values(float (&o)[kZ / 2], const uint32_t (&p)[32],
                                             uint32_t values) {
  const uint64_t v = wgmma_operand_n(values, kPanelBytes);
#pragma unroll
  for (int t = 0; t < kKeys / 16; ++t) wgmma_values(o, p + 4 * t, v + 128 * t);
  wgmma_commit();
}

/// Hides what a row may not see. Only tiles at a border of some row need it.
__device__ __forceinline__ void hide(float (&s)[64], int first, const RowSpan (&span)[2]) {
  const int column = first + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int key = column + i / 4 * 8 + i % 2, r = i / 2 % 2;
    if (key > span[r].high || key < span[r].low) s[i] = -INFINITY;
  }
}

/// Scores to weights; what was there shrinks by `shrink`.
template <int kZ>
__device__ __forceinline__ void weigh(float (&s)[64], float scale, RowState<kZ>& state,
                                      float (&shrink)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = state.highest[r];
#pragma unroll
    for (int j = 0; j < 16; ++j) most = fmaxf(most, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    // Exactly 1 where the highest stays: a tile that is masked for this row, which the item has for others, must change no bit.
    const float base = most == -INFINITY ? 0.0f : __fmul_rn(most, scale);
    shrink[r] = exp2_fast(__fadd_rn(__fmul_rn(state.highest[r], scale), -base));
    state.highest[r] = most;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& value = s[4 * j + 2 * r + i];
        value = exp2_fast(value * scale - base);
        sum += value;
      }
    }
    state.total[r] = state.total[r] * shrink[r] + sum;
  }
}

/// Weights as the left operand: for 16 keys rows g and g + 8, then both for 8 keys further.
__device__ __forceinline__ void pack_weights(const float (&s)[64], uint32_t (&p)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

template <int kZ>
__device__ __forceinline__ void shrink_sums(RowState<kZ>& state, const float (&shrink)[2]) {
#pragma unroll
  for (int i = 0; i < kZ / 2; ++i) state.o[i] *= shrink[i / 2 % 2];
}

/// Zeroes the values of positions outside [seen, end): 0 * garbage could be NaN. Each group does it, none waits.
template <int kZ>
__device__ __forceinline__ void clear_outside(uint32_t values, int first, const PrefillItem& item,
                                              int group) {
  if (first >= item.seen && first + kKeys <= item.end) return;
  for (int i = threadIdx.x % 128; i < kKeys * kZ / 8; i += 128) {
    const int position = first + i / 8 % kKeys;
    if (position >= item.seen && position < item.end) continue;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + i * 16), "r"(0)
                 : "memory");
  }
  fence_async_shared();
  named_barrier(1 + group, 128);
}

/// A group's turn to queue products begins, and ends with the other's.
__device__ __forceinline__ void await_turn(int group) { named_barrier(3 + group, 256); }
__device__ __forceinline__ void pass_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(3 + (group ^ 1)) : "memory");
}

/// One warp of a group is through with a stage.
__device__ __forceinline__ void release(uint64_t& empty) {
  if (threadIdx.x % kWarp == 0) barrier_arrive(shared_address(&empty));
}

/// Four lanes of a row have a word each of four neighbouring 16 bytes; afterwards lane q has the q-th 16 bytes.
__device__ __forceinline__ uint4 gather_words(uint32_t (&word)[4]) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (threadIdx.x & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const uint32_t sent = upper ? word[i] : word[i + step];
      const uint32_t got = __shfl_xor_sync(kAllLanes, sent, step);
      (upper ? word[i] : word[i + step]) = got;
    }
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

template <class TileT>
__device__ __forceinline__ void write_rows(const Attend& a, const PrefillItem& item, int row,
                                           RowState<TileT::kZ>& state) {
  constexpr int kZ = TileT::kZ;
  const int share = a.heads / a.kv_heads;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = state.total[r];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const int index = item.row + row + 8 * r, token = index / share;
    const bool real = token < item.tokens && row + 8 * r < TileT::tokens(share) * share;
    const float inverse = 1.0f / total;
    const int64_t head =
        int64_t{item.first_token + token} * a.heads + item.kv_head * share + index % share;
    bf16* to = static_cast<bf16*>(a.out) + head * kZ + threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < kZ / 8; j += 4) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* o = state.o + 4 * (j + i) + 2 * r;
        word[i] = pack_bf16(o[0] * inverse, o[1] * inverse);
      }
      const uint4 words = gather_words(word);
      if (real) *reinterpret_cast<uint4*>(to + j * 8) = words;
    }
  }
}

template <class TileT>
struct Consumer {
  static constexpr int kZ = TileT::kZ;
  PrefillShared<TileT>& shared;
  const Attend& a;
  int group;
  PrefillPlace at;

  /// The tile of the ring that is next, when it has come.
  __device__ __forceinline__ uint32_t await_tile() {
    barrier_wait(shared_address(&shared.full[at.slot]), at.parity);
    return shared_address(shared.tiles[at.slot]);
  }
  /// Queues the scores of the next tile; returns its slot.
  __device__ __forceinline__ int score(float (&s)[64]) {
    const uint32_t queries = shared_address(shared.queries) + group * (64 * 128);
    const uint32_t keys = await_tile();
    wgmma_begin();
    start_scores<TileT>(s, queries, keys);
    return next_slot();
  }
  /// Queues p times the next tile, whose positions begin at `first`; returns its slot.
  __device__ __forceinline__ int accumulate(float (&o)[kZ / 2], const uint32_t (&p)[32],
                                            const PrefillItem& item, int first) {
    const uint32_t values = await_tile();
    clear_outside<kZ>(values, first, item, group);
    wgmma_begin();
    start_values<kZ>(o, p, values);
    return next_slot();
  }
  __device__ __forceinline__ int next_slot() {
    const int slot = at.slot;
    at.advance();
    return slot;
  }

  __device__ __forceinline__ void run(const PrefillItem& item) {
    const int row = group * 64 + threadIdx.x / kWarp % 4 * 16 + threadIdx.x % kWarp / 4;
    const RowSpan span[2] = {row_span(a, item, row), row_span(a, item, row + 8)};
    // Tiles that all rows of the group see whole.
    const int whole_begin = row_span(a, item, group * 64 + 63).low;
    const int whole_end = row_span(a, item, group * 64).high + 1;
    const auto border = [&](int first) { return first < whole_begin || first + kKeys > whole_end; };
    const float scale = a.scale * kLog2e;
    RowState<kZ> state;
    float s[64] = {}, shrink[2];
    uint32_t p[32];
    int first = item.first_tile() * kKeys;
    int keys = score(s);
    wgmma_wait<0>();
    wgmma_hold(s);
    release(shared.empty[keys]);
    if (border(first)) hide(s, first, span);
    weigh<kZ>(s, scale, state, shrink);
    pack_weights(s, p);
#pragma unroll 1
    for (; first + kKeys < item.end; first += kKeys) {
      if constexpr (TileT::kGroups == 2) await_turn(group);
      keys = score(s);
      const int values = accumulate(state.o, p, item, first);
      if constexpr (TileT::kGroups == 2) pass_turn(group);
      wgmma_wait<1>();
      wgmma_hold(s);
      release(shared.empty[keys]);
      if (border(first + kKeys)) hide(s, first + kKeys, span);
      weigh<kZ>(s, scale, state, shrink);
      wgmma_hold(s);  // computed while the other product runs
      wgmma_wait<0>();
      wgmma_hold(state.o);
      release(shared.empty[values]);
      shrink_sums<kZ>(state, shrink);
      pack_weights(s, p);
    }
    release(shared.queries_empty);
    const int values = accumulate(state.o, p, item, first);
    wgmma_wait<0>();
    wgmma_hold(state.o);
    release(shared.empty[values]);
    write_rows<TileT>(a, item, row, state);
  }
};

/// The warps of a group.
template <class TileT>
__device__ __forceinline__ void attend_items(PrefillShared<TileT>& shared, const Attend& a) {
  constexpr bool kTurns = TileT::kGroups == 2;
  Consumer<TileT> me{shared, a, static_cast<int>(threadIdx.x) / 128, {}};
  RingCursor<kPrefillQueue> queue;
  uint32_t parity = 0;
  if (kTurns && me.group == 1) pass_turn(1);  // the first turn is the first group's
  for (PrefillItem item; next_item(shared, queue, item); parity ^= 1) {
    barrier_wait(shared_address(&shared.queries_full), parity);
    me.run(item);
  }
  if (kTurns && me.group == 0) await_turn(0);  // the second group's last word
}

}  // namespace switchyard::cuda
