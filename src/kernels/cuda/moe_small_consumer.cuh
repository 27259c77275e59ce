// SPDX-License-Identifier: Apache-2.0
// The warps of the single-launch layer (moe_small_sm90a.cu) that multiply: its up items, and its down pieces with their join.
#pragma once
#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_small.cuh"

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
  RingCursor<kStages> place = {};
  int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int group = warp / kGroupWarps, member = warp % kGroupWarps, g = lane / 4, q = lane % 4;

  static __device__ uint4 read(uint32_t address) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
  }

  // The tokens that a lane multiplies with one weight block: chunks 2 q and 2 q + 1 of 64 inputs, so that the quarters of
  // a warp read all banks of the weights.
  struct Tokens {
    uint4 chunk[2][kTilesN];
  };
  // Where the tokens of this warp's next stage are. While registers last (8 tokens) they are read one stage ahead, over the
  // borders of items and hits: the way to L2 is as long as the work on a stage.
  struct Source {
    const bf16* row[kTilesN];
    int tiles = 0;   // n8 that exist
    int blocks = 0;  // weight blocks from this stage on

    __device__ Tokens read(int member) const {
      Tokens tokens = {};
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        if (member >= blocks || n >= tiles) break;
        tokens.chunk[0][n] = reinterpret_cast<const uint4*>(row[n])[0];
        tokens.chunk[1][n] = reinterpret_cast<const uint4*>(row[n])[1];
      }
      return tokens;
    }
    __device__ void advance(int stages) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) row[n] += stages * kStageInputs;
      blocks -= stages * kStageBlocks;
    }
  };

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
  __device__ Source hit_source(const Piece& piece, int hit, const bf16* hidden) const {
    const int first_row = s.hit_row[hit], rows = s.hit_row[hit + 1] - first_row;
    const int first = piece.split ? group : 0;
    Source source;
    source.tiles = (rows + 7) / 8;
    source.blocks = piece.blocks - first * kStageBlocks;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      source.row[n] = hidden +
                      int64_t{first_row + min(n * 8 + g, rows - 1)} * shape.down_blocks * 64 +
                      piece.begin * 64 + first * kStageInputs + member * 64 + q * 16;
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
          const uint4 upper = read(at + m * 2048), lower = read(at + m * 2048 + 1024);
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
  template <class Next>
  __device__ void add_stages(Sums& sums, Source source, int step, Tokens& ahead, const Next& next) {
    while (source.blocks > 0) {
      const Tokens now = kAhead ? ahead : source.read(member);
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

  __device__ void up_items(const bf16* x, bf16* hidden) {
    const int first = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    if (first >= work.items) return;
    Tokens ahead = item_source(first, x).read(member);
    for (int item = first; item < work.items; item += blocks) {
      const int hit = item / work.tiles, first_row = s.hit_row[hit];
      const int rows = s.hit_row[hit + 1] - first_row;
      const int following = item + blocks < work.items ? item + blocks : item;
      Sums sums = {};
      add_stages(sums, item_source(item, x), kGroups, ahead,
                 [&] { return item_source(following, x); });
      keep(sums, (rows + 7) / 8);
      named_barrier(kConsumersBarrier, kConsumerThreads);
      const int j = thread / 16, column = thread % 16;
      if (j < rows) {
        const int row = column / 8 * 16 + column % 8;
        const int block = item % work.tiles, packed = block * MoePack::kBlockRows + row;
        const int expert = s.hit_expert[hit];
        const float gate =
            total<kConsumers>(row, j, 0) + bias_of<Product::up>(shape.up_bias, expert, packed);
        const float up = total<kConsumers>(row + 8, j, 0) +
                         bias_of<Product::up>(shape.up_bias, expert, packed + 8);
        hidden[int64_t{first_row + j} * shape.down_blocks * 64 + block * 16 + column] =
            __float2bfloat16(glu(shape.activation, gate, up));
      }
      named_barrier(kConsumersBarrier, kConsumerThreads);
    }
  }

  // One piece of all hit experts: into results [rows, 32].
  __device__ void down_hits(const Piece& piece, const bf16* hidden, float* results) {
    const int step = piece.split ? kGroups : 1, stride = piece.split ? 1 : kGroups;
    const int barrier = piece.split ? kConsumersBarrier : kGroupBarrier + group;
    const int threads = piece.split ? kConsumerThreads : kGroupWarps * 32;
    const int first_hit = piece.split ? 0 : group;
    if (first_hit >= s.num_hit) return;
    Tokens ahead = hit_source(piece, first_hit, hidden).read(member);
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

  // Leaves this block's part of the sums and says whether all parts are there now; then `sum` is the whole.
  __device__ bool join(const Piece& piece, uint32_t* sync, float* parts, float& sum) {
    const int first = piece.first_part(shape), last = piece.last_part(shape);
    if (first == last) return true;
    const bool mine = warp < shape.tokens;
    const int at = warp * kOutputs + lane, stride = shape.tokens * kOutputs;
    const int own = static_cast<int>(blockIdx.x) + piece.row_block;
    if (mine) __stcg(parts + own * stride + at, sum);
    __threadfence();
    named_barrier(kConsumersBarrier, kConsumerThreads);
    bool is_last = false;
    if (thread == 0) {
      uint32_t* const counter = sync + kFirstJoin + piece.row_block;
      is_last = atomicAdd(counter, 1u) == static_cast<uint32_t>(last - first);
      if (is_last) *counter = 0;
      __threadfence();
    }
    if (!named_barrier_any(kConsumersBarrier, kConsumerThreads, is_last)) return false;
    sum = 0;
    for (int i = first; mine && i <= last; ++i) sum += __ldcg(parts + i * stride + at);
    return true;
  }

  __device__ void down_piece(const Piece& piece, const MoeFfn::Args& args, const bf16* hidden,
                             float* results, float* parts) {
    const bool mine = warp < shape.tokens;
    const int64_t at = int64_t{warp} * shape.width + piece.row_block * kOutputs + lane;
    const float y = mine ? args.y[at] : 0.0f;  // long before it is needed
    down_hits(piece, hidden, results);
    named_barrier(kConsumersBarrier, kConsumerThreads);
    float sum = mine ? picked(piece, results) : 0.0f;
    if (join(piece, args.sync, parts, sum) && mine) {
      if (args.shared != nullptr) {
        const float weight = args.shared_weight != nullptr ? args.shared_weight[warp] : 1.0f;
        sum = fmaf(weight, args.shared[at], sum);
      }
      args.y[at] = fmaf(args.scale, sum, y);
    }
    named_barrier(kConsumersBarrier, kConsumerThreads);  // the results are free again
  }
};

}  // namespace switchyard::cuda::small_layer
