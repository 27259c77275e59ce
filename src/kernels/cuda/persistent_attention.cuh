// SPDX-License-Identifier: Apache-2.0
// Attention of the persistent step: one token, keys and values straight from memory into operands.
//
//   item      a kv head and a span of positions, one a block. Keys and values of earlier steps are asked for before q, k and v
//             of this one are there; the token's own key and value take their places in registers
//   scores    a warp has 16 keys of 256:  S^T [16 keys, 8 heads] = K Q^T; they meet in shared memory
//   values    a warp has 32 of Z and its share of the keys:  O^T [32, 8 heads] += V^T P^T, V transposed in registers
//   join      of the shares in shared memory, and of spans by the last block to arrive; both in a fixed order
// Source: Dao et al. 2023, "Flash-Decoding"; Milakov and Gimelshein 2018, arXiv 1805.02867.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"
#include "kernels/cuda/step_heads.cuh"

namespace switchyard::cuda::persistent {

template <int kZ>
class Attention {
  static constexpr int kSlices = kZ / 32, kSplits = kConsumers / kSlices;
  static constexpr int kSplitTiles = kConsumers / kSplits;
  static constexpr int kQueryBytes = kZ * 2 + 16;
  static constexpr int kPartFloats = kZ + 4;

 public:
  __device__ Attention(const PersistentStep& step, const Plan& plan, const PersistentLayer& layer,
                       Block& block, char* rows, Partials& partials)
      : step_(step), at_(plan.at), span_(block.span), block_(block), thread_(fresh_thread()) {
    workspace_ = static_cast<char*>(step.workspace);
    scores_ = reinterpret_cast<float*>(rows);
    queries_ = reinterpret_cast<char*>(&partials);
    outputs_ = reinterpret_cast<float*>(&partials);
    keys_from_ = static_cast<const bf16*>(layer.k_cache);
    values_from_ = static_cast<const bf16*>(layer.v_cache);
  }

  /// From the product's result to this head's part of `mixed`.
  __device__ __forceinline__ void run(const PersistentLayer& layer, uint32_t layer_number) {
    auto& events = *reinterpret_cast<Events*>(workspace_);
    const PrepareHeads heads = heads_of(layer);
    find_rows(span_.begin);
    const int own = head_of_warp();
    const TurnedHead<kZ / 64> turned(heads, 0, max(own, 0));
    bf16* const cached = warp() < kMaxShared ? nullptr : turned.target(heads, 0, *step_.slot);
    wait_until(events.qkv, (layer_number + 1) * gridDim.x);
    load_keys(span_.begin);
    prepare(heads, turned, own, cached);
    consumers_meet();
    attend();
    leave(events, layer_number);
  }

 private:
  __device__ __forceinline__ int lane() const { return thread_ % 32; }
  __device__ __forceinline__ int warp() const { return thread_ / 32; }

  __device__ __forceinline__ PrepareHeads heads_of(const PersistentLayer& layer) const {
    PrepareHeads heads;
    heads.heads = step_.heads;
    heads.kv_heads = step_.kv_heads;
    heads.head_dim = kZ;
    heads.norm = step_.qk_norm;
    heads.eps = step_.eps;
    heads.clip = step_.clip;
    heads.block_tokens = step_.block_tokens;
    heads.q_norm = layer.q_norm;
    heads.k_norm = layer.k_norm;
    heads.cos = step_.cos;
    heads.sin = step_.sin;
    heads.rope_row = step_.rope_row;
    heads.k_cache = layer.k_cache;
    heads.v_cache = layer.v_cache;
    return heads;
  }

  // Warps 0 to 7 have a query head, 8 the key, 9 the value; -1: none.
  __device__ int head_of_warp() const {
    const int shared = step_.heads / step_.kv_heads;
    if (warp() < shared) return span_.head * shared + warp();
    if (warp() == kMaxShared) return step_.heads + span_.head;
    if (warp() == kMaxShared + 1) return step_.heads + step_.kv_heads + span_.head;
    return -1;
  }

  __device__ __forceinline__ void prepare(const PrepareHeads& heads,
                                          const TurnedHead<kZ / 64>& turned, int own,
                                          bf16* cached) {
    if (warp() > kMaxShared + 1 || (warp() >= kMaxShared && !span_.has_token())) return;
    auto* to = reinterpret_cast<bf16*>(queries_ + warp() * kQueryBytes);
    if (warp() == kMaxShared + 1) to = block_.value_now;
    Pairs<kZ / 64> value = {};
    if (own >= 0)
      value = turned.values(heads, reinterpret_cast<const float*>(workspace_ + at_.qkv));
    turned.store(value, to);
    if (warp() >= kMaxShared) turned.store(value, cached);
  }

  // Where this warp's keys and values of a chunk are.
  __device__ __forceinline__ void find_rows(int chunk) {
    const int tile = chunk + warp() * kCacheTile;
    key_row_ = tile < span_.end ? span_.row_of(step_, tile) : 0;
#pragma unroll
    for (int t = 0; t < kSplitTiles; ++t) {
      const int first = chunk + (first_tile() + t) * kCacheTile;
      value_row_[t] = first < span_.end ? span_.row_of(step_, first) : 0;
    }
  }
  __device__ int first_tile() const { return warp() / kSlices * kSplitTiles; }

  // Keys of this warp's tile.
  __device__ __forceinline__ void load_keys(int chunk) {
    const int tile = chunk + warp() * kCacheTile;
#pragma unroll
    for (int i = 0; i < kZ / 32; ++i) key_[i][0] = key_[i][1] = make_uint4(0, 0, 0, 0);
    if (tile >= span_.end) return;
    const bf16* from = keys_from_ + int64_t{key_row_ + lane() / 4} * kZ + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kZ / 32; ++i) {
      key_[i][0] = *reinterpret_cast<const uint4*>(from + i * 32);
      key_[i][1] = *reinterpret_cast<const uint4*>(from + 8 * kZ + i * 32);
    }
  }
  // Values of this warp's share of a chunk.
  __device__ __forceinline__ void load_values(int chunk) {
    const int g = lane() / 4, z = warp() % kSlices * 32 + lane() % 4 * 8;
#pragma unroll
    for (int t = 0; t < kSplitTiles; ++t) {
      const int first = chunk + (first_tile() + t) * kCacheTile;
      value_[t][0] = value_[t][1] = make_uint4(0, 0, 0, 0);
      if (first >= span_.end) continue;
      const bf16* from = values_from_ + int64_t{value_row_[t] + g} * kZ + z;
      if (first + g < span_.end) value_[t][0] = *reinterpret_cast<const uint4*>(from);
      if (first + g + 8 < span_.end) {
        value_[t][1] = *reinterpret_cast<const uint4*>(from + 8 * kZ);
      }
    }
  }

  // The token's own key and value in the place of what memory held there.
  __device__ __forceinline__ void insert_key(int chunk) {
    if (!span_.has_token()) return;
    const int at = span_.position - chunk - warp() * kCacheTile - lane() / 4;
    const auto* key = reinterpret_cast<const uint4*>(queries_ + kMaxShared * kQueryBytes);
#pragma unroll
    for (int i = 0; i < kZ / 32; ++i) {
      if (at == 0) key_[i][0] = key[i * 4 + lane() % 4];
      if (at == 8) key_[i][1] = key[i * 4 + lane() % 4];
    }
  }
  __device__ __forceinline__ void insert_value(int chunk) {
    if (!span_.has_token()) return;
    const auto* value =
        reinterpret_cast<const uint4*>(block_.value_now) + warp() % kSlices * 4 + lane() % 4;
#pragma unroll
    for (int t = 0; t < kSplitTiles; ++t) {
      const int at = span_.position - chunk - (first_tile() + t) * kCacheTile - lane() / 4;
      if (at == 0) value_[t][0] = *value;
      if (at == 8) value_[t][1] = *value;
    }
  }

  // Scores in powers of two.
  __device__ __forceinline__ void score(int chunk) {
    const int g = lane() / 4, q = lane() % 4, tile = warp() * kCacheTile;
    float top[2] = {-INFINITY, -INFINITY};
    if (chunk + tile < span_.end) {
      float s[4] = {}, odd[4] = {};
#pragma unroll
      for (int i = 0; i < kZ / 32; ++i) {
        const uint4 query = reinterpret_cast<const uint4*>(queries_ + g * kQueryBytes)[i * 4 + q];
        const uint4 &low = key_[i][0], &high = key_[i][1];
        mma_bf16(s, low.x, high.x, low.y, high.y, query.x, query.y);
        mma_bf16(odd, low.z, high.z, low.w, high.w, query.z, query.w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = tile + g + i / 2 * 8;
        const float value = (s[i] + odd[i]) * step_.attention_scale * kLog2e;
        s[i] = chunk + key < span_.end ? value : -INFINITY;
        top[i % 2] = fmaxf(top[i % 2], s[i]);
        scores_[(q * 2 + i % 2) * kScoreStride + key] = s[i];
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(kAllLanes, top[i], offset));
      }
      if (g == 0) block_.tile_top[q * 2 + i][warp()] = top[i];
    }
  }

  // Follows the highest score of head g, and scales what is there to it.
  __device__ __forceinline__ void raise() {
    const int g = lane() / 4, q = lane() % 4;
    float top = top_;
    const auto* tops = reinterpret_cast<const float4*>(block_.tile_top[g]);
#pragma unroll
    for (int i = 0; i < kConsumers / 4; ++i) {
      top = fmaxf(top, fmaxf(fmaxf(tops[i].x, tops[i].y), fmaxf(tops[i].z, tops[i].w)));
    }
    const float shrink = exp2_fast(top_ - top);
    top_ = top;
    total_ *= shrink;
    const float even = __shfl_sync(kAllLanes, shrink, q * 8);
    const float odd = __shfl_sync(kAllLanes, shrink, q * 8 + 4);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum_[m][i] *= i % 2 == 0 ? even : odd;
    }
  }

  __device__ __forceinline__ void add_values(int chunk) {
    const int g = lane() / 4, q = lane() % 4;
#pragma unroll
    for (int t = 0; t < kSplitTiles; ++t) {
      const int tile = (first_tile() + t) * kCacheTile;
      if (chunk + tile >= span_.end) break;
      const float* from = scores_ + g * kScoreStride + tile + q * 2;
      const float2 low = *reinterpret_cast<const float2*>(from);
      const float2 high = *reinterpret_cast<const float2*>(from + 8);
      const float p[4] = {exp2_fast(low.x - top_), exp2_fast(low.y - top_),
                          exp2_fast(high.x - top_), exp2_fast(high.y - top_)};
      total_ += (p[0] + p[1]) + (p[2] + p[3]);
      const uint32_t b0 = pack_bf16(p[0], p[1]), b1 = pack_bf16(p[2], p[3]);
      const uint4 &v = value_[t][0], &w = value_[t][1];
      mma_bf16(sum_[0], transpose_matrix(v.x), transpose_matrix(v.y), transpose_matrix(w.x),
               transpose_matrix(w.y), b0, b1);
      mma_bf16(sum_[1], transpose_matrix(v.z), transpose_matrix(v.w), transpose_matrix(w.z),
               transpose_matrix(w.w), b0, b1);
    }
  }

  __device__ __forceinline__ void attend() {
#pragma unroll 1
    for (int chunk = span_.begin; chunk < span_.end; chunk += kChunk) {
      if (chunk != span_.begin) {
        find_rows(chunk);
        load_keys(chunk);
      }
      insert_key(chunk);
      score(chunk);
      load_values(chunk);
      consumers_meet();
      raise();
      insert_value(chunk);
      add_values(chunk);
      if (chunk + kChunk < span_.end) consumers_meet();  // the scores are free again
    }
    store_shares();
    consumers_meet();
  }

  __device__ __forceinline__ void store_shares() {
    const int g = lane() / 4, q = lane() % 4;
    const int slice = warp() % kSlices, split = warp() / kSlices;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = q * 2 + i % 2, z = slice * 32 + g / 2 * 8 + (m * 2 + i / 2) * 2 + g % 2;
        outputs_[(split * kMaxShared + head) * kZ + z] = sum_[m][i];
      }
    }
    total_ += __shfl_xor_sync(kAllLanes, total_, 1);
    total_ += __shfl_xor_sync(kAllLanes, total_, 2);
    if (slice == 0 && q == 0) block_.split_total[split][g] = total_;
    if (warp() == 0 && q == 0) block_.top[g] = top_;
  }

  __device__ __forceinline__ void write(int head, int z, float low, float high, float total) const {
    const int shared = step_.heads / step_.kv_heads;
    auto* to = reinterpret_cast<bf16*>(workspace_ + at_.mixed);
    to += (span_.head * shared + head) * kZ + z;
    *reinterpret_cast<uint32_t*>(to) = pack_bf16(low / total, high / total);
  }
  __device__ __forceinline__ float* part(int index, int head) const {
    const int item = index * step_.kv_heads + span_.head;
    return reinterpret_cast<float*>(workspace_ + at_.spans) +
           (item * kMaxShared + head) * kPartFloats;
  }

  // A thread has two values of a head.
  __device__ __forceinline__ void leave(Events& events, uint32_t layer_number) {
    const int head = thread_ / (kZ / 2), z = thread_ % (kZ / 2) * 2;
    const bool mine = head < step_.heads / step_.kv_heads;
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
    if (span_.count == 1) {
      if (mine) write(head, z, low, high, total);
      return tell(events.mixed);
    }
    if (mine) {
      float* to = part(span_.index, head);
      *reinterpret_cast<float2*>(to + 4 + z) = make_float2(low, high);
      if (z == 0) *reinterpret_cast<float2*>(to) = make_float2(block_.top[head], total);
    }
    consumers_meet();
    if (thread_ == 0) {
      uint32_t before;
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(&events.spans[span_.head].count)
                   : "memory");
      block_.last = before == (layer_number + 1) * static_cast<uint32_t>(span_.count) - 1;
    }
    consumers_meet();
    if (block_.last == 0) return;
    if (mine) join(head, z);
    tell(events.mixed);
  }

  // All spans of a head, in their order.
  __device__ __forceinline__ void join(int head, int z) const {
    float top = -INFINITY, total = 0, low = 0, high = 0;
    for (int i = 0; i < span_.count; ++i) {
      top = fmaxf(top, __ldcg(part(i, head)));
    }
#pragma unroll 4
    for (int i = 0; i < span_.count; ++i) {
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
  const Span& span_;
  Block& block_;
  char* workspace_;
  float* scores_;
  char* queries_;
  float* outputs_;
  const bf16 *keys_from_, *values_from_;
  int key_row_, value_row_[kSplitTiles];
  uint4 key_[kZ / 32][2];
  uint4 value_[kSplitTiles][2];
  float sum_[2][4] = {};
  float top_ = -INFINITY, total_ = 0;
  int thread_;
};

}  // namespace switchyard::cuda::persistent
