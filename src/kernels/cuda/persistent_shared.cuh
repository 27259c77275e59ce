// SPDX-License-Identifier: Apache-2.0
// The persistent step (step_persistent_sm90a.cu): shared memory of a block, how matrices are cut, and the workspace.
#pragma once

#include "kernels/cuda/attention_items.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_small_consumer.cuh"
#include "kernels/cuda/persistent_words.cuh"
#include "kernels/cuda/step_persistent.h"

namespace switchyard::cuda::persistent {

using namespace small_layer;

inline constexpr int kStages = 3;  // of a group's ring
// The producer and the scout are warps of a group of four, so that registers can pass from these to the consumers.
inline constexpr int kStepThreads = kConsumerThreads + 128;
inline constexpr int kProducerRegisters = 32, kConsumerRegisters = 112;
static_assert(128 * kProducerRegisters + kConsumerThreads * kConsumerRegisters <= kStepThreads * 96,
              "the block has what it was launched with, 96 for each thread");
inline constexpr int kQuads = 2;  // float4 of the residual stream that a thread keeps
inline constexpr int64_t kMaxWidth = int64_t{kQuads} * 4 * kConsumerThreads;
inline constexpr int kMaxBlockStages = 32;  // of a dense product, in one block
inline constexpr int kMaxDenseRows = 8 * kMaxBlockStages;
inline constexpr int kMaxGateExperts = 256;
inline constexpr int kMaxPicks = 16;
inline constexpr int kMostGuessed = 128;  // experts, that picks are guessed of
inline constexpr int kGuessStages = 10;   // of 16 KiB that a block reads as guessed
inline constexpr uint8_t kNoPlace = 255;
inline constexpr int kMaxShared = 8;  // query heads of a kv head
inline constexpr int kMaxHead = 128;
inline constexpr int kRowBytes = 8448;  // tokens of a product, scores, or the inputs of a piece
static_assert(kRowBytes >= 2 * kMaxWidth);

using OneToken = SharedOf<kMaxPicks, kMaxPicks>;
using Experts = Consumer<1, kStages, OneToken>;
using Partials = Experts::Partials;
inline constexpr int kRingBytes = kGroups * kStages * kStageBytes;
inline constexpr int kDynamicBytes = kRingBytes + static_cast<int>(sizeof(Partials)) + kRowBytes;

/// Of the dynamic shared memory, behind the ring and the partial sums.
__device__ __forceinline__ char* rows_of(char* dynamic) {
  return dynamic + kRingBytes + sizeof(Partials);
}

// ---- attention

inline constexpr int kChunkTiles = 8;
inline constexpr int kChunk = kChunkTiles * kCacheTile;  // keys at a time
inline constexpr int kSpan =
    2 * kChunk;  // what a block does alone before another helps: to meet costs more than a chunk
inline constexpr int kScoreStride =
    kChunk + 4;  // floats of a head's scores, padded against bank conflicts
static_assert(kMaxShared * kScoreStride * 4 <= kRowBytes);

/// What a block does of attention: a run of positions of one kv head.
struct Span {
  int head;  // kv head
  int index, count;
  int begin, end;  // positions; begin is a multiple of 16
  int position;    // of the token itself
  bool exists;
  __device__ void find(const PersistentStep& step) {
    position = *step.context_len;
    const int seen = position + 1, most = static_cast<int>(gridDim.x) / step.kv_heads;
    const int wanted = min(most, (seen + kSpan - 1) / kSpan);
    const int tiles = (seen + kCacheTile - 1) / kCacheTile, each = (tiles + wanted - 1) / wanted;
    count = (tiles + each - 1) / each;
    head = static_cast<int>(blockIdx.x) % step.kv_heads;
    index = static_cast<int>(blockIdx.x) / step.kv_heads;
    begin = index * each * kCacheTile;
    end = min(seen, begin + each * kCacheTile);
    exists = index < count;
  }
  // Row of the caches, all (block, kv head, position), of a position.
  __device__ __forceinline__ int row_of(const PersistentStep& step, int at) const {
    const auto place = static_cast<unsigned>(at), tokens = static_cast<unsigned>(step.block_tokens);
    const int number = step.block_table[place / tokens];
    return (number * step.kv_heads + head) * step.block_tokens + static_cast<int>(place % tokens);
  }
  __device__ bool has_token() const { return index == count - 1; }
};

// ---- shared memory

/// What the picks are made of: of each 32 experts, the best.
struct Candidates {
  alignas(16) uint32_t warp_key[kMaxGateExperts / 32][32];
  alignas(16) uint32_t key[kMaxGateExperts / 32 * kMaxPicks];
  uint16_t expert[kMaxGateExperts / 32 * kMaxPicks];

  static __host__ __device__ int of_warp(const RouteRule& rule) { return (rule.top_k + 3) / 4 * 4; }
  static __host__ __device__ int count(const RouteRule& rule) {
    return (rule.experts + 31) / 32 * of_warp(rule);
  }
  // Those that have one, and so may find a pick.
  static __host__ __device__ int warps(const RouteRule& rule) { return (count(rule) + 31) / 32; }
};
/// Where a warp's part of a dense product begins: in a stage and in the token, and how far apart its two rows are. In bytes.
struct DensePlace {
  int stage, token, row;
};
/// The pieces that share a run of outputs leave their sums one behind the other; first and last.
struct PartRange {
  uint16_t first, last;
};

/// Beside the ring, the partial sums and the rows. What follows from the plan is kept here, too: worked out on the way, as what does
/// not change from layer to layer, it would take registers, and there are none left.
struct Block {
  OneToken s;
  Work work;
  int rank;        // among the blocks, for the experts' weights (persistent_deal.cuh)
  int first_part;  // where its sums of the down product go, less the row of blocks
  Span span;
  Events* events;
  int qkv_stages, output_stages;  // of this block
  DensePlace qkv_place[kConsumers], output_place[kConsumers];
  PartRange part[kMaxWidth / kOutputs];
  uint64_t routed;                 // the picks are there
  uint64_t described;              // so is the next layer's description
  uint64_t rows_there, rows_read;  // what the q, k, v product reads; and the foresight has read it
  uint64_t guessed;                // the guesses are there
  alignas(16) PersistentLayer layer[2];
  alignas(16) float sums[kMaxBlockStages][8];
  float logits[kMaxGateExperts];
  Candidates candidates;
  alignas(16) float reduce[3][kConsumers];
  uint32_t epoch;                       // layers of all steps before this one
  float attention_scale;                // 1 / rms before attention
  float gate_scale;                     // what logits of rows in that scale lack
  bool usable;                          // the logits are numbers
  int guess[kMaxPicks];                 // the picks, as guessed
  uint32_t wrong_guesses;               // bit i: guess i is no pick
  uint8_t place_of[kMaxPicks];          // of pick i, by rank
  uint8_t guessed_place[kMostGuessed];  // of an expert
  alignas(8) float own[kMaxDenseRows];  // this block's rows of the stream before attention
  float weighted[kMaxDenseRows];        // and after it, as the gate's product wants them
  float turn[2][kMaxHead / 2];          // the position's cosines and sines
  int turn_row;                         // 0: their row
  int cache_row;                        // where the token's key and value go
  int tile_row
      [3]
      [kChunkTiles];  // rows of the caches where tiles begin: of the span's first chunk, and of others in turn
  alignas(16) float tile_top[kMaxShared][kChunkTiles];
  float split_total[8][kMaxShared];
  float top[kMaxShared];
  alignas(16) bf16 value_now[kMaxHead];
  int last;
};

/// Takes off `left`, of the stages that the block reads as guessed, those of this item, which are its first.
__device__ __forceinline__ int take_guessed(const Work& work, int& left) {
  const int stages = min(left, work.item_stages);
  left -= stages;
  return stages;
}
/// Whether the item's pick was guessed, of which its guessed stages are.
__device__ __forceinline__ bool guessed_wrong(const Block& block, int item) {
  return (block.wrong_guesses >> (item / block.work.tiles) & 1) != 0;
}

static_assert((sizeof(Block) + 1023) / 1024 * 1024 + kDynamicBytes <= kMaxSharedBytes,
              "what a block can have on Hopper");

/// The number of this thread, which the compiler does not know to be the same in each layer: else it works out the addresses of all
/// phases before the first layer, and has no registers for them.
__device__ __forceinline__ int fresh_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// ---- a dense product [n, k] as stages

/// A stage is whole rows, 16 KiB at most, which lie in one piece. A warp of the group takes a segment of two rows.
struct DenseCut {
  int segment_bits = 0;  // a row is 1, 2 or 4 segments
  int row_bits = 3;      // a stage 8, 4 or 2 rows
  int steps = 1;         // of 256 inputs in a segment
  int stages = 0;        // of the matrix, dealt to the blocks in turn

  DenseCut(int64_t n, int64_t k) {
    while (k >> segment_bits > 1024) ++segment_bits;
    row_bits = 3 - segment_bits;
    steps = static_cast<int>((k >> segment_bits) / 256);
    stages = static_cast<int>(n >> row_bits);
  }
  static bool can(int64_t n, int64_t k) {
    return k % 256 == 0 && (k <= 1024 || k == 2048 || k == 4096) &&
           n % (int64_t{1} << DenseCut(n, k).row_bits) == 0;
  }
  /// Of a warp of a group.
  __device__ DensePlace place(int member) const {
    const int segment = member & ((1 << segment_bits) - 1), row = (steps * 512) << segment_bits;
    return {(member >> segment_bits) * 2 * row + segment * steps * 512, segment * steps * 512, row};
  }
  /// The number of this block's stages.
  __device__ int of_block() const {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    return (stages - block + blocks - 1) / blocks;
  }
  /// Which row of the matrix the block's row `local` is.
  __device__ int row(int local) const {
    const int stage =
        (local >> row_bits) * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    return (stage << row_bits) + (local & ((1 << row_bits) - 1));
  }
};

// ---- memory between blocks, by offsets in bytes

struct Workspace {
  int64_t epoch, qkv, squares, mixed, middle, logits, hidden, parts, spans, guesses, end;

  Workspace(const PersistentStep& step, int blocks) {
    const auto room = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const int64_t heads = step.heads + 2 * step.kv_heads;
    epoch = room(sizeof(Events));
    qkv = epoch + room(4);
    squares = qkv + room(heads * step.head_dim * 8);
    mixed = squares + room(int64_t{2} * blocks * 8);
    middle = mixed + room(int64_t{step.heads} * step.head_dim * 4);
    logits = middle + room(step.width * 4);
    hidden = logits + kTallyLayers * kTallyBytes;
    parts = hidden + room(step.experts.rule.top_k * MoePack::padded(step.experts.ffn_width) * 4);
    spans = parts + room((blocks + 1 + MoePack::padded(step.width) / kOutputs) * kOutputs * 4);
    guesses = spans + room(int64_t{blocks} * kMaxShared * (step.head_dim + 4) * 4);
    end = guesses + room(int64_t{kMostGuessed} * 2 * 8);
  }
};

/// Of items of so many stages, each dealt to the groups from the first one on: as many, up to kGuessStages, as no group has more than its
/// ring has room for. Else who sends them would wait for the picks in front of a guess.
inline int stages_in_rings(int item_stages) noexcept {
  int in_ring[kGroups] = {};
  for (int stage = 0; stage < kGuessStages; ++stage) {
    if (++in_ring[stage % item_stages % kGroups] > kStages) return stage;
  }
  return kGuessStages;
}

/// What the host works out once.
struct Plan {
  Shape shape;
  DenseCut qkv, output;
  int expert_bits = 0;  // experts are dealt to threads by powers of two
  bool down_by_sides;   // runs of the down product are of strips of one side
  bool small_pieces;    // the inputs of a piece of the down product fit into shared memory
  int guessed_stages;  // that a block reads as guessed at most, picks being settled by the warp that makes them; 0: nothing is guessed
  Workspace at;

  Plan(const PersistentStep& step, int blocks)
      : shape(shape_of(step.experts, 1, blocks)),
        qkv(int64_t{step.heads + 2 * step.kv_heads} * step.head_dim, step.width),
        output(step.width, int64_t{step.heads} * step.head_dim),
        at(step, blocks) {
    shape.side_mask = step.sides.mask;
    down_by_sides = can_run_by_sides(blocks / 2);
    small_pieces =
        shape.rule.top_k * std::min(shape.down_share, shape.down_blocks) * 128 <= kRowBytes;
    const bool can = shape.rule.experts <= kMostGuessed && Candidates::warps(shape.rule) == 1;
    guessed_stages = can ? stages_in_rings((shape.up_blocks + kStageBlocks - 1) / kStageBlocks) : 0;
    while (1 << expert_bits < shape.rule.experts) ++expert_bits;
  }

 private:
  // Rows of blocks are whole runs, or runs whole rows: else runs would be cut elsewhere than without sides, and sums be other ones.
  bool can_run_by_sides(int blocks) const {
    const int share = shape.down_share, length = shape.down_blocks;
    return shape.side_mask != 0 && (share % length == 0 || length % share == 0) &&
           blocks * share >= shape.up_blocks * length;
  }
};

}  // namespace switchyard::cuda::persistent
