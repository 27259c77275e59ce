// SPDX-License-Identifier: Apache-2.0
// The scout of the persistent step: one warp that goes a layer ahead of the others. It brings the layer's description into shared
// memory, and asks for what is small (norms, the gate, keys and values of earlier steps) to be in the L2: asked for when it is needed, it
// would come behind all weights that are on their way, 5 us of them.
#pragma once
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

class Scout {
 public:
  __device__ Scout(const PersistentStep& step, Block& block) : step_(step), block_(block) {}

  __device__ void run() {
    for (int l = 0; l < step_.layers; ++l) {
      // While the experts of a layer are read comes what the next one needs.
      if (l > 0) barrier_wait(shared_address(&block_.routed), (l - 1) & 1);
      describe(l);
      const PersistentLayer& layer = block_.layer[l & 1];
      ask(layer.attention_norm, step_.width * 4);
      ask(layer.ffn_norm, step_.width * 4);
      ask(layer.gate, step_.experts.rule.experts * step_.width * 4);
      if (block_.span.exists) {
        ask_for_norms(layer);
        ask_for_span(layer);
      }
    }
  }

 private:
  static constexpr int kLine = 128;

  __device__ void describe(int l) {
    constexpr int kWords = sizeof(PersistentLayer) / 8;
    static_assert(sizeof(PersistentLayer) % 8 == 0 && kWords <= 32);
    auto* to = reinterpret_cast<uint64_t*>(&block_.layer[l & 1]);
    if (lane_id() < kWords)
      to[lane_id()] = reinterpret_cast<const uint64_t*>(step_.layer + l)[lane_id()];
    __syncwarp();
    if (lane_id() == 0) barrier_arrive(shared_address(&block_.described));
  }
  static __device__ void ask_line(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
  }
  // This block's lines of something that all blocks ask for together.
  static __device__ void ask(const void* from, int64_t bytes) {
    const int blocks = static_cast<int>(gridDim.x), lines = static_cast<int>(bytes / kLine);
    for (int i = lane_id() * blocks + static_cast<int>(blockIdx.x); i < lines; i += 32 * blocks) {
      ask_line(static_cast<const char*>(from) + int64_t{i} * kLine);
    }
  }
  // The norms of this block's heads.
  __device__ void ask_for_norms(const PersistentLayer& layer) const {
    if (step_.qk_norm == QkNormKind::none) return;
    const bool full = step_.qk_norm == QkNormKind::full_width;
    const int shared = step_.heads / step_.kv_heads, lines = step_.head_dim * 4 / kLine;
    const auto* q = reinterpret_cast<const char*>(layer.q_norm);
    const auto* k = reinterpret_cast<const char*>(layer.k_norm);
    if (full) {
      q += int64_t{block_.span.head} * shared * lines * kLine;
      k += int64_t{block_.span.head} * lines * kLine;
    }
    if (lane_id() < (full ? shared : 1) * lines) ask_line(q + lane_id() * kLine);
    if (lane_id() < lines) ask_line(k + lane_id() * kLine);
  }
  // The first keys and values of this block's span.
  __device__ void ask_for_span(const PersistentLayer& layer) const {
    const Span& span = block_.span;
    const int row_bytes = step_.head_dim * 2, end = min(span.end, span.begin + kSpan);
    for (int position = span.begin + lane_id(); position < end; position += 32) {
      const int64_t at = int64_t{span.row_of(step_, position)} * row_bytes;
      for (int line = 0; line < row_bytes; line += kLine) {
        ask_line(static_cast<const char*>(layer.k_cache) + at + line);
        ask_line(static_cast<const char*>(layer.v_cache) + at + line);
      }
    }
  }

  const PersistentStep& step_;
  Block& block_;
};

}  // namespace switchyard::cuda::persistent
