// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_work.h"

#include <algorithm>
#include <cstring>

namespace switchyard::cpu {
namespace {

// Fewer multiply-adds than this are not worth waking a thread for: some 10 microseconds of one.
constexpr int64_t kGrainWork = 1 << 19;
// Spans that a thread takes between two merges when few tiles are split over many threads.
constexpr int kSplitStates = 4;
// Tiles are split when there are fewer of them for each thread.
constexpr int kSplitTiles = 2;

struct Step {
  const Attention::Problem& p;
  const Attention::Args& args;
  const AttentionSteps& steps;
  float* memory;
  int num_threads;

  // Per thread its scratch and two states, then (for splitting) the states of spans and of tiles.
  int64_t thread_floats() const { return attention_scratch(p) + 2 * attention_state(p); }
  float* scratch(int thread) const { return memory + thread * thread_floats(); }
  AttentionState state_at(float* at) const {
    const int64_t rows = tile_rows(p);
    return {at, at + rows * padded_head(p), at + rows * (padded_head(p) + kMaxWidth)};
  }
  AttentionState thread_state(int thread, int which) const {
    return state_at(scratch(thread) + attention_scratch(p) + which * attention_state(p));
  }
  AttentionState shared_state(int64_t index) const {
    return state_at(memory + num_threads * thread_floats() + index * attention_state(p));
  }
  AttentionState span_state(int64_t index) const { return shared_state(index); }
  AttentionState tile_state(int64_t index) const {
    return shared_state(int64_t{num_threads} * kSplitStates + index);
  }

  int64_t length(int b) const { return args.seq_offset[b + 1] - args.seq_offset[b]; }
  int64_t tiles(int b) const { return (length(b) + tile_tokens(p) - 1) / tile_tokens(p); }
  int64_t rows(const AttentionTile& tile) const { return tile.num_tokens * (p.heads / p.kv_heads); }

  int64_t count_tiles() const {
    int64_t count = 0;
    for (int b = 0; b < args.sequences; ++b) count += tiles(b) * p.kv_heads;
    return count;
  }
  // Tiles in the order of sequence, kv head (so that its keys stay in L2) and tokens, the last first: they see the most
  // keys, and the end of the step should be made of small work.
  AttentionTile tile_of(int64_t index) const {
    int b = 0;
    for (; index >= tiles(b) * p.kv_heads; ++b) index -= tiles(b) * p.kv_heads;
    const int64_t first = (tiles(b) - 1 - index % tiles(b)) * tile_tokens(p);
    return {b, static_cast<int>(index / tiles(b)), first,
            std::min<int64_t>(length(b) - first, tile_tokens(p))};
  }
  // The keys of span `i` of those that a tile sees.
  int64_t num_spans(const AttentionTile& tile) const {
    const KeyRange seen = seen_keys(p, args, tile);
    return (seen.end - 1) / kSpanKeys - seen.begin / kSpanKeys + 1;
  }
  KeyRange span_of(const AttentionTile& tile, int64_t i) const {
    const KeyRange seen = seen_keys(p, args, tile);
    const int64_t begin = (seen.begin / kSpanKeys + i) * kSpanKeys;
    return {std::max(begin, seen.begin), std::min(begin + kSpanKeys, seen.end)};
  }

  bool is_small() const {
    int64_t work = 0;
    for (int b = 0; b < args.sequences; ++b) work += length(b) * (args.context_len[b] + length(b));
    return work * p.heads * p.head_dim * 2 < kGrainWork;
  }

  void run_tile(int64_t index, int thread) const;
  void run_split(int64_t num_tiles, Pool& pool) const;
};

// All spans of a tile, one after the other.
void Step::run_tile(int64_t index, int thread) const {
  const AttentionTile tile = tile_of(index);
  const AttentionState all = thread_state(thread, 0), next = thread_state(thread, 1);
  const int64_t spans = num_spans(tile);
  for (int64_t i = 0; i < spans; ++i) {
    steps.span(p, args, tile, span_of(tile, i), i == 0 ? all : next, scratch(thread));
    if (i > 0) steps.merge(p, rows(tile), all, next);
  }
  steps.finish(p, args, tile, all);
}

// Few tiles over many threads: the spans of all tiles stand in one line and are taken in waves of as many as there is
// memory for; after each wave, every tile merges its spans of the wave in their order.
void Step::run_split(int64_t num_tiles, Pool& pool) const {
  int64_t total = 0;
  for (int64_t t = 0; t < num_tiles; ++t) total += num_spans(tile_of(t));
  const int64_t wave = int64_t{num_threads} * kSplitStates;
  const auto bytes = static_cast<size_t>(attention_state(p)) * sizeof(float);
  for (int64_t done = 0; done < total; done += wave) {
    const int64_t end = std::min(done + wave, total);
    pool.for_each(end - done, [&](int64_t item, int thread) {
      int64_t t = 0, i = done + item;
      for (; i >= num_spans(tile_of(t)); ++t) i -= num_spans(tile_of(t));
      const AttentionTile tile = tile_of(t);
      steps.span(p, args, tile, span_of(tile, i), span_state(item), scratch(thread));
    });
    pool.for_each(num_tiles, [&](int64_t t, int) {
      int64_t first = 0;
      for (int64_t before = 0; before < t; ++before) first += num_spans(tile_of(before));
      const AttentionTile tile = tile_of(t);
      const int64_t last = first + num_spans(tile);
      for (int64_t i = std::max(first, done); i < std::min(last, end); ++i) {
        if (i == first) {
          std::memcpy(tile_state(t).out, span_state(i - done).out, bytes);
        } else {
          steps.merge(p, rows(tile), tile_state(t), span_state(i - done));
        }
        if (i == last - 1) steps.finish(p, args, tile, tile_state(t));
      }
    });
  }
}

}  // namespace

KeyRange seen_keys(const Attention::Problem& p, const Attention::Args& args,
                   const AttentionTile& tile) noexcept {
  const int64_t first = args.context_len[tile.sequence] + tile.first_token;
  return {p.window > 0 ? std::max<int64_t>(0, first - p.window + 1) : 0, first + tile.num_tokens};
}

int64_t attention_memory(const Attention::Problem& p, int num_threads) noexcept {
  const int64_t per_thread =
      attention_scratch(p) + (2 + kSplitStates + kSplitTiles) * attention_state(p);
  return num_threads * per_thread * static_cast<int64_t>(sizeof(float));
}

void run_attention(const Attention::Problem& p, const Attention::Args& args,
                   std::span<std::byte> workspace, const Stream& stream,
                   const AttentionSteps& steps) noexcept {
  Pool& pool = stream.pool();
  const Step step{p, args, steps, reinterpret_cast<float*>(workspace.data()), pool.num_threads()};
  const int64_t num_tiles = step.count_tiles();
  if (pool.num_threads() == 1 || step.is_small()) {
    for (int64_t i = 0; i < num_tiles; ++i) step.run_tile(i, 0);
  } else if (num_tiles < int64_t{kSplitTiles} * pool.num_threads()) {
    step.run_split(num_tiles, pool);
  } else {
    pool.for_each(num_tiles, [&](int64_t index, int thread) { step.run_tile(index, thread); });
  }
}

}  // namespace switchyard::cpu
