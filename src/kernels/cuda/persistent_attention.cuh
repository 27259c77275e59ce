// SPDX-License-Identifier: Apache-2.0
// Attention of the persistent step: one token, keys and values straight from memory into operands.
//
//   item      a kv head and a span of positions, one a block. Keys and values of earlier steps are asked for before q, k and v
//             of this one are there
//   warps     eight of keys, eight of values, which bring the query heads first (persistent_attention_warps.cuh)
//   join      of the shares in shared memory, and of spans by the last block to arrive; both in a fixed order
// Source: Dao et al. 2023, "Flash-Decoding"; Milakov and Gimelshein 2018, arXiv 1805.02867.
#pragma once
#include "kernels/cuda/persistent_attention_warps.cuh"

namespace switchyard::cuda::persistent {

template <int kZ>
class Attention {
  static constexpr int kSplits = ValueWarp<kZ>::kSplits;
  static constexpr int kPartFloats = kZ + 4;
  static constexpr int kOutputBytes = kSplits * kMaxShared * kZ * 4;
  static_assert(kOutputBytes + (kMaxShared + 1) * kQueryBytes<kZ> <= sizeof(Partials));

 public:
  __device__ Attention(const PersistentStep& step, const Plan& plan, const PersistentLayer& layer,
                       Block& block, char* rows, Partials& partials, uint32_t tag)
      : step_(step),
        at_(plan.at),
        layer_(layer),
        block_(block),
        scores_(reinterpret_cast<float*>(rows)),
        outputs_(reinterpret_cast<float*>(&partials)),
        queries_(reinterpret_cast<char*>(&partials) + kOutputBytes),
        thread_(fresh_thread()),
        tag_(tag) {}

  /// Asks for a chunk's keys or values: of the first one long before the queries are there, as all of them are more than L1 has room
  /// for, and whoever asks has to wait.
  __device__ __forceinline__ void load(int chunk, Held<kZ>& held) const {
    const int* row = block_.tile_row[chunk_slot(chunk)];
    if (warp() < kSideWarps) {
      KeyWarp<kZ>(step_, block_, lane(), warp()).load(layer_.k_cache, chunk, row, held);
    } else {
      ValueWarp<kZ>(block_, lane(), warp() - kSideWarps).load(layer_.v_cache, chunk, row, held);
    }
  }

  /// From the product's result to this head's part of `mixed`; `held` is of the first chunk.
  __device__ __forceinline__ void run(uint32_t layer_number, Held<kZ>& held) {
    const bool has_keys = warp() < kSideWarps;
    const KeyWarp<kZ> keys(step_, block_, lane(), warp());
    ValueWarp<kZ> values(block_, lane(), warp() - kSideWarps);
#pragma unroll 1
    for (int chunk = block_.span.begin;; chunk += kChunk) {
      if (chunk == block_.span.begin) {
        bring_head();
      } else {
        load(chunk, held);
      }
      consumers_meet();  // queries and rows are there, the scores are free
      if (has_keys) keys.score(chunk, held, queries_, scores_);
      if (warp() == 0) find_rows(chunk + kChunk);
      consumers_meet();
      const bool more = chunk + kChunk < block_.span.end;
      if (!has_keys) values.add(chunk, held, scores_);
      if (!more) break;
    }
    if (!has_keys) values.store_shares(outputs_);
    consumers_meet();
    leave(layer_number);
  }

 private:
  __device__ __forceinline__ int lane() const { return thread_ % 32; }
  __device__ __forceinline__ int warp() const { return thread_ / 32; }
  __device__ int shared_heads() const { return step_.heads / step_.kv_heads; }
  template <class T>
  __device__ T* array(int64_t at) const {
    return reinterpret_cast<T*>(static_cast<char*>(step_.workspace) + at);
  }
  __device__ Events& events() const { return *block_.events; }

  // Where the rows of a chunk's tiles are; the first chunk's stay from layer to layer.
  __device__ __forceinline__ int chunk_slot(int chunk) const {
    return chunk == block_.span.begin ? 0 : 1 + (chunk - block_.span.begin) / kChunk % 2;
  }
  // One warp.
  __device__ __forceinline__ void find_rows(int chunk) const {
    const int first = chunk + lane() * kCacheTile;
    if (lane() < kChunkTiles && first < block_.span.end) {
      block_.tile_row[chunk_slot(chunk)][lane()] = block_.span.row_of(step_, first);
    }
  }

  // Value warps have a query head each, key warp 0 the token's key, 1 its value.
  __device__ __forceinline__ void bring_head() const {
    const Span& span = block_.span;
    const int shared = shared_heads(), side = warp() % kSideWarps;
    int head = side < shared ? span.head * shared + side : -1;
    auto* to = reinterpret_cast<bf16*>(queries_ + side * kQueryBytes<kZ>);
    if (warp() < kSideWarps) {
      if (side > 1 || !span.has_token()) return;
      head = step_.heads + side * step_.kv_heads + span.head;
      to = side == 1 ? block_.value_now
                     : reinterpret_cast<bf16*>(queries_ + kMaxShared * kQueryBytes<kZ>);
    }
    bf16* cached = nullptr;
    if (warp() < kSideWarps) {
      void* const cache = side == 0 ? layer_.k_cache : layer_.v_cache;
      cached = static_cast<bf16*>(cache) + int64_t{block_.cache_row} * kZ;
    }
    const Heads<kZ> own(step_, layer_, block_, head);
    own.run(step_, array<uint64_t>(at_.qkv), array<uint64_t>(at_.squares), tag_, to, cached);
  }

  __device__ __forceinline__ void write(int head, int z, float low, float high, float total) const {
    const int at = ((block_.span.head * shared_heads() + head) * kZ + z) / 2;
    const float scale = reciprocal(total);
    store_tagged(array<uint64_t>(at_.mixed) + at, pack_bf16(low * scale, high * scale), tag_);
  }
  __device__ __forceinline__ float* part(int index, int head) const {
    const int item = index * step_.kv_heads + block_.span.head;
    return array<float>(at_.spans) + (item * kMaxShared + head) * kPartFloats;
  }

  // A thread has two values of a head.
  __device__ __forceinline__ void leave(uint32_t layer_number) {
    const int head = thread_ / (kZ / 2), z = thread_ % (kZ / 2) * 2;
    const bool mine = head < shared_heads();
    float low = 0, high = 0, total = 0;
    if (mine) {
#pragma unroll
      for (int s = 0; s < kSplits; ++s) {
        const auto v =
            *reinterpret_cast<const float2*>(outputs_ + (s * kMaxShared + head) * kZ + z);
        low += v.x;
        high += v.y;
        total += block_.split_total[s][head];
      }
    }
    bool last = true;
    if (block_.span.count == 1) {
      if (mine) write(head, z, low, high, total);
    } else {
      if (mine) leave_part(head, z, low, high, total);
      last = is_last(layer_number);
      if (last && mine) join(head, z);
    }
    if (last && thread_ == 0) hint_at(events().mixed_here);
  }
  __device__ __forceinline__ void leave_part(int head, int z, float low, float high,
                                             float total) const {
    float* to = part(block_.span.index, head);
    *reinterpret_cast<float2*>(to + 4 + z) = make_float2(low, high);
    if (z == 0) *reinterpret_cast<float2*>(to) = make_float2(block_.top[head], total);
  }
  // Whether all spans of the head have come.
  __device__ __forceinline__ bool is_last(uint32_t layer_number) {
    const Span& span = block_.span;
    consumers_meet();
    if (thread_ == 0) {
      uint32_t before;
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(&events().spans[span.head].count)
                   : "memory");
      block_.last = before == (layer_number + 1) * static_cast<uint32_t>(span.count) - 1;
    }
    consumers_meet();
    return block_.last != 0;
  }

  // All spans of a head, in their order.
  __device__ __forceinline__ void join(int head, int z) const {
    float top = -INFINITY, total = 0, low = 0, high = 0;
    for (int i = 0; i < block_.span.count; ++i) {
      top = fmaxf(top, __ldcg(part(i, head)));
    }
#pragma unroll 4
    for (int i = 0; i < block_.span.count; ++i) {
      const float* from = part(i, head);
      const float2 sums = __ldcg(reinterpret_cast<const float2*>(from));
      const float2 v = __ldcg(reinterpret_cast<const float2*>(from + 4 + z));
      const float weight = exp2_fast(sums.x - top);
      total += sums.y * weight;
      low += v.x * weight;
      high += v.y * weight;
    }
    write(head, z, low, high, total);
  }

  const PersistentStep& step_;
  const Workspace& at_;
  const PersistentLayer& layer_;
  Block& block_;
  float *scores_, *outputs_;
  char* queries_;
  int thread_;
  uint32_t tag_;
};

}  // namespace switchyard::cuda::persistent
