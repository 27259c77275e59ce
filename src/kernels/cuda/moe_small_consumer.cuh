// SPDX-License-Identifier: Apache-2.0
// The warps of the single-launch layer (moe_small_sm90a.cu) that multiply: its up items, and its down pieces with their join.
#pragma once
#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_small_rows.cuh"
#include "kernels/cuda/read_shared.cuh"

namespace switchyard::cuda::small_layer {

// kTilesN: n8 of tokens.
template <int kTilesN, int kStages, class Shared = small_layer::Shared>
struct Consumer {
  static constexpr bool kAhead = kTilesN == 1;
  using Sums = float[2][kTilesN][4];  // two m16: the rows of a weight block
  using Partials = float[kConsumers][2][kTilesN][128];

  Shared& s;
  const Shape& shape;
  const Work& work;
  uint32_t ring;
  Partials& partials;
  uint32_t tag = 0;  // of this launch's values
  RingCursor<kStages> place = {};
  int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int group = warp / kGroupWarps, member = warp % kGroupWarps, g = lane / 4, q = lane % 4;

  using Tokens = TokensOf<kTilesN>;
  using Source = PlainRows<kTilesN>;

  // The group's first stage of an item, or of a hit expert in a piece.
  __device__ Source item_source(int item, const bf16* x) const {
    const int hit = item / work.tiles, first_row = s.hit_row[hit];
    const int rows = s.hit_row[hit + 1] - first_row;
    Source source;
    source.tiles = (rows + 7) / 8;
    source.blocks = shape.up_blocks - group * kStageBlocks;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      const int row = s.row_token[first_row + min(n * 8 + g, rows - 1)];
      source.row[n] = x + int64_t{row} * shape.width + group * kStageInputs + member * 64 + q * 16;
    }
    return source;
  }
  __device__ TaggedRows<kTilesN> hit_source(const Piece& piece, int hit,
                                            const uint64_t* hidden) const {
    const int first_row = s.hit_row[hit], rows = s.hit_row[hit + 1] - first_row;
    const int first = piece.split ? group : 0;
    TaggedRows<kTilesN> source;
    source.tiles = (rows + 7) / 8;
    source.blocks = piece.blocks - first * kStageBlocks;
    source.tag = tag;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      source.row[n] = hidden +
                      int64_t{first_row + min(n * 8 + g, rows - 1)} * shape.down_blocks * 32 +
                      (piece.begin + first * kStageBlocks + member) * 32 + q * 2;
    }
    return source;
  }

  // Adds this warp's weight block of the group's next stage, if the stage has that many.
  __device__ void add_stage(Sums& sums, const Tokens& tokens, int tiles, int blocks) {
    const uint32_t stage = group * kStages + place.slot;
    barrier_wait(shared_address(&s.full[stage]), place.parity);
    if (member < blocks) {
      const uint32_t block = ring + stage * kStageBytes + member * MoePack::kBlockBytes + g * 128;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t at = block + ((q * 2 + half ^ g) << 4);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint4 upper = read_shared(at + m * 2048), lower = read_shared(at + m * 2048 + 1024);
#pragma unroll
          for (int n = 0; n < kTilesN; ++n) {
            if (n >= tiles) break;
            const uint4& t = tokens.chunk[half][n];
            mma_bf16(sums[m][n], upper.x, lower.x, upper.y, lower.y, t.x, t.y);
            mma_bf16(sums[m][n], upper.z, lower.z, upper.w, lower.w, t.z, t.w);
          }
        }
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&s.empty[stage]));
    place.advance();
  }

  // Adds stages of one item or hit, `step` apart in its row of stages; `ahead` holds the tokens of the first, and then those
  // of what `next` is the source of.
  template <class From, class Next>
  __device__ void add_stages(Sums& sums, From source, int step, typename From::Raw& ahead,
                             const Next& next) {
    while (source.blocks > 0) {
      const Tokens now = source.settle(kAhead ? ahead : source.read(member), member);
      const int blocks = source.blocks;
      source.advance(step);
      if (kAhead) ahead = source.blocks > 0 ? source.read(member) : next().read(member);
      add_stage(sums, now, source.tiles, blocks);
    }
  }

  __device__ void keep(const Sums& sums, int tiles) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        if (n >= tiles) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) partials[warp][m][n][i * 32 + lane] = sums[m][n][i];
      }
    }
  }
  // The sum over kWarps warps, in their order, of what they kept for (row of a weight block, token row).
  template <int kWarps>
  __device__ float total(int row, int j, int first_warp) const {
    const int at = (j % 2 + row % 16 / 8 * 2) * 32 + row % 8 * 4 + j % 8 / 2;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += partials[first_warp + w][row / 16][j / 8][at];
    return sum;
  }

  // Hidden columns of a row, one a lane of 16; all lanes come, those with a row leave their value.
  __device__ void leave(uint64_t* hidden, int row, int column, float value, bool exists) const {
    const float next = __shfl_down_sync(kAllLanes, value, 1);
    if (!exists || column % 2 != 0) return;
    const int word = hidden_word(column / 2);
    store_tagged(hidden + int64_t{row} * shape.down_blocks * 32 + word, pack_bf16(value, next),
                 tag);
  }

  template <class Items>
  __device__ void up_items(const bf16* x, uint64_t* hidden, Items& items) {
    int item = items.first();
    if (item < 0) return;
    Tokens ahead = item_source(item, x).read(member);
    for (; item >= 0;) {
      const int hit = item / work.tiles, first_row = s.hit_row[hit];
      const int rows = s.hit_row[hit + 1] - first_row;
      Sums sums = {};
      add_stages(sums, item_source(item, x), kGroups, ahead, [&] {
        const int next = items.after(item);
        return item_source(next < 0 ? item : next, x);
      });
      keep(sums, (rows + 7) / 8);
      named_barrier(kConsumersBarrier, kConsumerThreads);
      const int j = thread / 16, column = thread % 16;
      float value = 0;
      if (j < rows) {
        const int row = column / 8 * 16 + column % 8;
        const int block = item % work.tiles, packed = block * MoePack::kBlockRows + row;
        const int expert = s.hit_expert[hit];
        const float gate =
            total<kConsumers>(row, j, 0) + bias_of<Product::up>(shape.up_bias, expert, packed);
        const float up = total<kConsumers>(row + 8, j, 0) +
                         bias_of<Product::up>(shape.up_bias, expert, packed + 8);
        value = glu(shape.activation, gate, up);
      }
      leave(hidden, first_row + j, item % work.tiles * 16 + column, value, j < rows);
      named_barrier(kConsumersBarrier, kConsumerThreads);
      item = items.after(item);
      items.advance();
    }
  }

  // One piece of all hit experts: into results [rows, 32].
  __device__ void down_hits(const Piece& piece, const uint64_t* hidden, float* results) {
    const int step = piece.split ? kGroups : 1, stride = piece.split ? 1 : kGroups;
    const int barrier = piece.split ? kConsumersBarrier : kGroupBarrier + group;
    const int threads = piece.split ? kConsumerThreads : kGroupWarps * 32;
    const int first_hit = piece.split ? 0 : group;
    if (first_hit >= s.num_hit) return;
    auto ahead = hit_source(piece, first_hit, hidden).read(member);
    for (int hit = first_hit; hit < s.num_hit; hit += stride) {
      const int first_row = s.hit_row[hit], rows = s.hit_row[hit + 1] - first_row;
      const int following = min(hit + stride, s.num_hit - 1);
      Sums sums = {};
      add_stages(sums, hit_source(piece, hit, hidden), step, ahead,
                 [&] { return hit_source(piece, following, hidden); });
      keep(sums, (rows + 7) / 8);
      named_barrier(barrier, threads);
      for (int i = thread % threads; i < rows * kOutputs; i += threads) {
        const int row = i % kOutputs, j = i / kOutputs;
        results[first_row * kOutputs + i] = piece.split
                                                ? total<kConsumers>(row, j, 0)
                                                : total<kGroupWarps>(row, j, group * kGroupWarps);
      }
      named_barrier(barrier, threads);
    }
  }

  // The picks of this warp's token, summed in their order, for output `lane`; biases with the first inputs.
  __device__ float picked(const Piece& piece, const float* results) const {
    const bool biased = piece.begin == 0 && shape.down_bias.values != nullptr;
    float sum = 0;
    for (int k = 0; k < shape.rule.top_k; ++k) {
      const int pick = warp * shape.rule.top_k + k, row = s.pick_row[pick];
      if (row < 0) continue;
      float result = results[row * kOutputs + lane];
      if (biased) {
        result += bias_of<Product::down>(shape.down_bias, s.pick_expert[pick],
                                         piece.row_block * kOutputs + lane);
      }
      sum = fmaf(s.pick_weight[pick], result, sum);
    }
    return sum;
  }

  // A claimed piece: what it adds to each token's outputs, as a tagged part.
  __device__ void down_piece(int number, const uint64_t* hidden, float* results, uint64_t* parts) {
    const Piece piece(shape, number);
    down_hits(piece, hidden, results);
    named_barrier(kConsumersBarrier, kConsumerThreads);
    if (warp < shape.tokens) {
      const float sum = picked(piece, results);
      store_tagged(parts + (int64_t{number} * shape.tokens + warp) * kOutputs + lane,
                   __float_as_uint(sum), tag);
    }
    named_barrier(kConsumersBarrier, kConsumerThreads);  // the results are free again
  }

  // The sum of the parts of an output, in the order of their inputs.
  __device__ float joined(int row_block, int token, const uint64_t* parts) const {
    constexpr int kAtOnce = 4;
    const int count = Piece::pieces_in_row(shape), stride = shape.tokens * kOutputs;
    const uint64_t* const first =
        parts + int64_t{row_block} * count * stride + token * kOutputs + lane;
    float sum = 0;
    for (int p = 0; p < count; p += kAtOnce) {
      uint64_t word[kAtOnce];
      bool missing = true;
      while (missing) {
        missing = false;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (p + i < count) word[i] = read_tagged(first + (p + i) * stride);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (p + i < count) missing |= static_cast<uint32_t>(word[i] >> 32) != tag;
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (p + i < count) sum += __uint_as_float(static_cast<uint32_t>(word[i]));
      }
    }
    return sum;
  }

  // The outputs that a block adds up when all pieces are claimed: 32 of one token, number `turn` of this warp.
  struct Output {
    int row_block, token;
    int64_t at;
  };
  __device__ Output output(int turn) const {
    const int number = warp + turn * kConsumers;
    Output out;
    out.row_block =
        static_cast<int>(blockIdx.x) + number / shape.tokens * static_cast<int>(gridDim.x);
    out.token = number % shape.tokens;
    out.at = int64_t{out.token} * shape.width + out.row_block * kOutputs + lane;
    return out;
  }
  __device__ bool exists(const Output& out) const { return out.row_block < shape.up_blocks * 2; }

  // `y`: of the warp's first outputs, read long before.
  __device__ void add_parts(const MoeFfn::Args& args, const uint64_t* parts, float y) {
    Output out = output(0);
    for (int turn = 0; exists(out); out = output(++turn)) {
      if (turn > 0) y = args.y[out.at];
      float sum = s.num_hit > 0 ? joined(out.row_block, out.token, parts) : 0;
      if (args.shared != nullptr) {
        const float weight = args.shared_weight != nullptr ? args.shared_weight[out.token] : 1.0f;
        sum = fmaf(weight, args.shared[out.at], sum);
      }
      args.y[out.at] = fmaf(args.scale, sum, y);
    }
  }
};

}  // namespace switchyard::cuda::small_layer
