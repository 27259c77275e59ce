// SPDX-License-Identifier: Apache-2.0
// A whole MoE layer for at most 16 tokens in one launch, bound by the stream of the hit experts' weights.
//
//   route    every block makes the same picks, one warp a token, and the same list of hit experts
//   up       items of 16 hidden columns of one expert are dealt to the blocks as equal runs
//   barrier  over the grid; meanwhile the producer goes on and fills the rings with w2
//   down     the weight blocks of w2 are dealt to the blocks of threads as equal runs, the same for every expert. A piece,
//            32 outputs x some inputs, goes through all hit experts; then the picks of a token are summed in their order
//   join     where several pieces make an output, each leaves its sum in memory and the last to arrive adds them up, in
//            the order of the inputs
// A stage is 32 packed rows x 256 inputs, one bulk copy of 16 KiB. One warp produces. Four groups of four warps consume: a
// stage belongs to one group, so that four are in the works at once; a warp takes one weight block of it, as the M operand
// of mma m16n8k16. A lane reads 16 bytes of a weight row and the same 16 inputs of a token row, a permutation of the inputs
// that both operands share. Every group has a ring of its own, because a barrier tells a waiter only the parity of its
// phase: in a shared ring a group that is more than a round ahead of the others would take old bytes for new.
// All sums are f32 in an order that follows from the shape: a token's bits do not depend on its batch.
//   cost  the bytes of the hit experts once, and about 5 us of start, routing, barrier and end
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda/route_token.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kMaxTokens = 16, kMaxExperts = 256, kMaxRows = 256;
constexpr int kGroups = 4, kGroupWarps = 4, kConsumers = kGroups * kGroupWarps;
constexpr int kConsumerThreads = kConsumers * 32, kThreads = kConsumerThreads + 32;
constexpr int kStageBytes = 16384;
constexpr int kStageBlocks = kStageBytes / MoePack::kBlockBytes;  // weight blocks, one a warp
constexpr int kStageInputs = kStageBlocks * MoePack::kAtomInputs;
constexpr int kMaxStages = 3;  // of the ring of a group
constexpr int kMaxSharedBytes = 227 * 1024;
constexpr int kOutputs = MoePack::kBlockRows;  // of a piece
constexpr int kFirstJoin = 32;  // of Args::sync: counters of parts; word 0 is the grid's barrier

// Barriers of the block by number; 0 is __syncthreads.
constexpr int kConsumersBarrier = 1, kGroupBarrier = 2;

struct Shape {
  RouteRule rule;
  GluActivation activation = GluActivation::swiglu;
  int tokens = 0, width = 0;
  int up_blocks = 0;    // of 64 inputs: Dp / 64
  int down_blocks = 0;  // Fp / 64
  int down_share = 0;   // weight blocks of w2 that a block of threads takes of every expert
};

struct Shared {
  uint64_t full[kGroups * kMaxStages], empty[kGroups * kMaxStages];
  uint32_t tokens[kMaxExperts];  // bit t: token t picked the expert
  int first_row[kMaxExperts];
  int num_hit;
  int hit_expert[kMaxExperts], hit_row[kMaxExperts + 1];
  int row_token[kMaxRows];
  int pick_expert[kMaxRows], pick_row[kMaxRows];
  float pick_weight[kMaxRows];
  bool last_to_join;
};

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }

// A place in the ring of a group: it goes round, and the parity of its barriers' phases turns over each time.
template <int kStages>
struct RingPlace {
  uint32_t slot = 0, parity = 0;
  __device__ void advance() {
    if (++slot == kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// ---- routing

__device__ __forceinline__ Pick route_of(const RouteRule& rule, const float* logits,
                                         const float* bias) {
  if (rule.experts <= 64) return route_token<2>(rule, logits, bias, lane_id());
  if (rule.experts <= 128) return route_token<4>(rule, logits, bias, lane_id());
  return route_token<kMaxExperts / 32>(rule, logits, bias, lane_id());
}

// The list of hit experts and every expert's first row, from the bit masks; one warp a run of 32 experts. Rows and hits
// are counted in one word.
__device__ void list_hits(Shared& s, int experts) {
  const int lane = lane_id(), warp = warp_id();
  if (warp * 32 >= experts) return;
  const auto counted = [&](int expert) -> uint32_t {
    const uint32_t tokens = expert < experts ? s.tokens[expert] : 0;
    return __popc(tokens) | (tokens != 0 ? 1u << 16 : 0);
  };
  uint32_t before = 0;
  for (int w = 0; w < warp; ++w) before += __reduce_add_sync(kAllLanes, counted(w * 32 + lane));
  const int expert = warp * 32 + lane;
  const uint32_t mine = counted(expert);
  uint32_t through = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t lower = __shfl_up_sync(kAllLanes, through, step);
    if (lane >= step) through += lower;
  }
  const uint32_t first = before + through - mine;
  if (expert < experts) s.first_row[expert] = static_cast<int>(first & 0xffff);
  if (mine != 0) {
    s.hit_expert[first >> 16] = expert;
    s.hit_row[first >> 16] = static_cast<int>(first & 0xffff);
  }
  if (expert == experts - 1) {
    const uint32_t all = before + through;
    s.num_hit = static_cast<int>(all >> 16);
    s.hit_row[all >> 16] = static_cast<int>(all & 0xffff);
  }
}

// Lane k of warp t gives pick k of token t its row.
__device__ void place_pick(Shared& s, const Shape& shape, const Pick& pick) {
  const int t = warp_id(), k = lane_id();
  if (t >= shape.tokens || k >= shape.rule.top_k) return;
  int row = -1;
  if (pick.expert >= 0) {
    row = s.first_row[pick.expert] + __popc(s.tokens[pick.expert] & ((1u << t) - 1));
    s.row_token[row] = t;
  }
  const int at = t * shape.rule.top_k + k;
  s.pick_expert[at] = pick.expert;
  s.pick_row[at] = row;
  s.pick_weight[at] = pick.weight;
}

// What the route kernel would have written, by the consumers of one block.
__device__ void store_routing(const Shared& s, const Shape& shape, const DeviceRouting& to) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < shape.tokens * shape.rule.top_k; i += kConsumerThreads) {
    to.expert[i] = s.pick_expert[i];
    to.weight[i] = s.pick_weight[i];
    to.pick_row[i] = s.pick_row[i];
  }
  for (int e = thread; e < shape.rule.experts; e += kConsumerThreads) {
    to.slot_offset[e] = s.first_row[e];
  }
  const int rows = s.hit_row[s.num_hit];
  for (int i = thread; i < s.num_hit; i += kConsumerThreads) to.hit[i] = s.hit_expert[i];
  for (int i = thread; i < rows; i += kConsumerThreads) to.row_token[i] = s.row_token[i];
  if (thread == 0) {
    *to.num_hit = s.num_hit;
    to.slot_offset[shape.rule.experts] = rows;
  }
}

// ---- the plan of a block: both products as rows of stages

struct Work {
  int tiles;                   // items of one hit
  int items_begin, items_end;  // of w13: (hit, 16 hidden columns)
  int item_stages;
  int down_begin, down_end;  // weight blocks of w2, counted through all its rows of blocks

  Work() = default;
  __device__ Work(const Shape& shape, int hits) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    tiles = shape.down_blocks * 4;
    const int items = hits * tiles;
    items_begin = items * block / blocks;
    items_end = items * (block + 1) / blocks;
    item_stages = (shape.up_blocks + kStageBlocks - 1) / kStageBlocks;
    const int all = shape.up_blocks * 2 * shape.down_blocks;
    down_begin = min(all, block * shape.down_share);
    down_end = min(all, down_begin + shape.down_share);
  }
};

// 32 outputs x a run of inputs.
struct Piece {
  int row_block;      // outputs [row_block * 32, ...)
  int begin, blocks;  // weight blocks of 64 inputs
  int stages;         // of one hit
  bool split;         // a hit's stages go round the groups; else they are one group's

  __device__ Piece(const Shape& shape, const Work& work, int at) {
    row_block = at / shape.down_blocks;
    begin = at % shape.down_blocks;
    blocks = min(shape.down_blocks - begin, work.down_end - at);
    stages = (blocks + kStageBlocks - 1) / kStageBlocks;
    split = stages >= kGroups;
  }
  // Block (of threads) i gives its part of the sums as number i + row_block; these are the first and the last.
  __device__ int first_part(const Shape& shape) const {
    return row_block * shape.down_blocks / shape.down_share + row_block;
  }
  __device__ int last_part(const Shape& shape) const {
    return ((row_block + 1) * shape.down_blocks - 1) / shape.down_share + row_block;
  }
};

// ---- the producer warp

template <int kStages>
struct Producer {
  Shared& s;
  const Shape& shape;
  uint32_t ring;
  RingPlace<kStages> places[kGroups] = {};

  // Copies weight blocks that follow each other into the group's next stage, once that is free.
  __device__ void copy(int group, const char* from, int blocks) {
    uint32_t stage = 0, parity = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {  // an index that is known keeps the places in registers
      if (i != group) continue;
      stage = i * kStages + places[i].slot;
      parity = places[i].parity;
      places[i].advance();
    }
    barrier_wait(shared_address(&s.empty[stage]), parity ^ 1);
    if (lane_id() != 0) return;
    const uint32_t full = shared_address(&s.full[stage]), bytes = blocks * MoePack::kBlockBytes;
    barrier_arrive_expect(full, bytes);
    bulk_copy(ring + stage * kStageBytes, from, bytes, full);
  }

  __device__ void up(const Work& work, const char* w13) {
    const int64_t tile_bytes = int64_t{shape.up_blocks} * MoePack::kBlockBytes;
    for (int item = work.items_begin; item < work.items_end; ++item) {
      const int64_t expert = s.hit_expert[item / work.tiles];
      const char* from = w13 + (expert * work.tiles + item % work.tiles) * tile_bytes;
      for (int c = 0; c < work.item_stages; ++c) {
        copy(c % kGroups, from + c * kStageBytes,
             min(kStageBlocks, shape.up_blocks - c * kStageBlocks));
      }
    }
  }

  __device__ void down(const Work& work, const char* w2) {
    const int64_t row_bytes = int64_t{shape.down_blocks} * MoePack::kBlockBytes;
    const int64_t expert_bytes = shape.up_blocks * 2 * row_bytes;
    for (int at = work.down_begin; at < work.down_end;) {
      const Piece piece(shape, work, at);
      for (int hit = 0; hit < s.num_hit; ++hit) {
        const char* from = w2 + s.hit_expert[hit] * expert_bytes + piece.row_block * row_bytes +
                           piece.begin * MoePack::kBlockBytes;
        for (int c = 0; c < piece.stages; ++c) {
          copy((piece.split ? c : hit) % kGroups, from + c * kStageBytes,
               min(kStageBlocks, piece.blocks - c * kStageBlocks));
        }
      }
      at += piece.blocks;
    }
  }
};

// ---- the consumer warps

// kTilesN: n8 of tokens.
template <int kTilesN, int kStages>
struct Consumer {
  using Sums = float[2][kTilesN][4];  // two m16: the rows of a weight block
  using Partials = float[kConsumers][2][kTilesN][128];

  Shared& s;
  const Shape& shape;
  const Work& work;
  uint32_t ring;
  Partials& partials;
  int group = warp_id() / kGroupWarps, member = warp_id() % kGroupWarps;
  int g = lane_id() / 4, q = lane_id() % 4;
  RingPlace<kStages> place = {};

  static __device__ uint4 read(uint32_t address) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
  }

  // Adds this warp's weight block of the group's next stage, if the stage has that many. token[n]: the lane's token row
  // at this weight block. Chunks 2 q and 2 q + 1 are the lane's: so the quarters of a warp read all banks.
  __device__ void add_stage(Sums& sums, const bf16* const (&token)[kTilesN], int tiles,
                            int blocks) {
    const bool real = member < blocks;
    uint4 tokens[2][kTilesN] = {};
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (!real || n >= tiles) break;
      tokens[0][n] = reinterpret_cast<const uint4*>(token[n])[0];
      tokens[1][n] = reinterpret_cast<const uint4*>(token[n])[1];
    }
    const uint32_t stage = group * kStages + place.slot;
    barrier_wait(shared_address(&s.full[stage]), place.parity);
    if (real) {
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
            const uint4& t = tokens[half][n];
            mma_bf16(sums[m][n], upper.x, lower.x, upper.y, lower.y, t.x, t.y);
            mma_bf16(sums[m][n], upper.z, lower.z, upper.w, lower.w, t.z, t.w);
          }
        }
      }
    }
    __syncwarp();
    if (lane_id() == 0) barrier_arrive(shared_address(&s.empty[stage]));
    place.advance();
  }

  __device__ void keep(const Sums& sums, int tiles) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        if (n >= tiles) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) partials[warp_id()][m][n][i * 32 + lane_id()] = sums[m][n][i];
      }
    }
  }
  // The sum over warps, in their order, of what they kept for (row of a weight block, token row).
  __device__ float total(int row, int j, int first_warp, int warps) const {
    const int at = (j % 2 + row % 16 / 8 * 2) * 32 + row % 8 * 4 + j % 8 / 2;
    float sum = 0;
#pragma unroll 4
    for (int w = first_warp; w < first_warp + warps; ++w) sum += partials[w][row / 16][j / 8][at];
    return sum;
  }

  __device__ void up_item(int item, const bf16* x, bf16* hidden) {
    const int hit = item / work.tiles, first_row = s.hit_row[hit];
    const int rows = s.hit_row[hit + 1] - first_row, tiles = (rows + 7) / 8;
    const bf16* token[kTilesN];
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      const int row = s.row_token[first_row + min(n * 8 + g, rows - 1)];
      token[n] = x + int64_t{row} * shape.width + group * kStageInputs + member * 64 + q * 16;
    }
    Sums sums = {};
    for (int c = group; c < work.item_stages; c += kGroups) {
      add_stage(sums, token, tiles, shape.up_blocks - c * kStageBlocks);
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) token[n] += kGroups * kStageInputs;
    }
    keep(sums, tiles);
    named_barrier(kConsumersBarrier, kConsumerThreads);
    const int thread = static_cast<int>(threadIdx.x), j = thread / 16, column = thread % 16;
    if (j < rows) {
      const int row = column / 8 * 16 + column % 8;
      const float gate = total(row, j, 0, kConsumers), up = total(row + 8, j, 0, kConsumers);
      hidden[int64_t{first_row + j} * shape.down_blocks * 64 + item % work.tiles * 16 + column] =
          __float2bfloat16(glu(shape.activation, gate, up));
    }
    named_barrier(kConsumersBarrier, kConsumerThreads);
  }

  // One hit expert's part of a piece: into results [rows, 32].
  __device__ void down_hit(const Piece& piece, int hit, const bf16* hidden, float* results) {
    const int first_row = s.hit_row[hit], rows = s.hit_row[hit + 1] - first_row;
    const int tiles = (rows + 7) / 8, width = shape.down_blocks * 64;
    const int first = piece.split ? group : 0, step = piece.split ? kGroups : 1;
    const bf16* token[kTilesN];
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      token[n] = hidden + int64_t{first_row + min(n * 8 + g, rows - 1)} * width + piece.begin * 64 +
                 first * kStageInputs + member * 64 + q * 16;
    }
    Sums sums = {};
    for (int c = first; c < piece.stages; c += step) {
      add_stage(sums, token, tiles, piece.blocks - c * kStageBlocks);
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) token[n] += step * kStageInputs;
    }
    keep(sums, tiles);
    const int barrier = piece.split ? kConsumersBarrier : kGroupBarrier + group;
    const int threads = piece.split ? kConsumerThreads : kGroupWarps * 32;
    named_barrier(barrier, threads);
    for (int i = static_cast<int>(threadIdx.x) % threads; i < rows * kOutputs; i += threads) {
      results[first_row * kOutputs + i] =
          total(i % kOutputs, i / kOutputs, piece.split ? 0 : group * kGroupWarps,
                piece.split ? kConsumers : kGroupWarps);
    }
    named_barrier(barrier, threads);
  }

  // The picks of this warp's token, summed in their order, for output `lane`.
  __device__ float picked(const float* results) const {
    float sum = 0;
    for (int k = 0; k < shape.rule.top_k; ++k) {
      const int pick = warp_id() * shape.rule.top_k + k, row = s.pick_row[pick];
      if (row < 0) continue;
      sum = fmaf(s.pick_weight[pick], results[row * kOutputs + lane_id()], sum);
    }
    return sum;
  }

  // Leaves this block's part of the sums and says whether all parts are there now; then `sum` is the whole.
  __device__ bool join(const Piece& piece, uint32_t* sync, float* parts, float& sum) {
    const int first = piece.first_part(shape), last = piece.last_part(shape);
    if (first == last) return true;
    const bool mine = warp_id() < shape.tokens;
    const int at = warp_id() * kOutputs + lane_id(), stride = shape.tokens * kOutputs;
    const int own = static_cast<int>(blockIdx.x) + piece.row_block;
    if (mine) __stcg(parts + own * stride + at, sum);
    __threadfence();
    named_barrier(kConsumersBarrier, kConsumerThreads);
    if (threadIdx.x == 0) {
      uint32_t* const counter = sync + kFirstJoin + piece.row_block;
      s.last_to_join = atomicAdd(counter, 1u) == static_cast<uint32_t>(last - first);
      if (s.last_to_join) *counter = 0;
      __threadfence();
    }
    named_barrier(kConsumersBarrier, kConsumerThreads);
    if (!s.last_to_join) return false;
    sum = 0;
    for (int i = first; mine && i <= last; ++i) sum += __ldcg(parts + i * stride + at);
    return true;
  }

  __device__ void down_piece(const Piece& piece, const MoeFfn::Args& args, const bf16* hidden,
                             float* results, float* parts) {
    const bool mine = warp_id() < shape.tokens;
    const int64_t at = int64_t{warp_id()} * shape.width + piece.row_block * kOutputs + lane_id();
    const float y = mine ? args.y[at] : 0.0f;  // long before it is needed
    for (int hit = piece.split ? 0 : group; hit < s.num_hit; hit += piece.split ? 1 : kGroups) {
      down_hit(piece, hit, hidden, results);
    }
    named_barrier(kConsumersBarrier, kConsumerThreads);
    float sum = mine ? picked(results) : 0.0f;
    if (join(piece, args.sync, parts, sum) && mine) {
      if (args.shared != nullptr) {
        const float weight = args.shared_weight != nullptr ? args.shared_weight[warp_id()] : 1.0f;
        sum = fmaf(weight, args.shared[at], sum);
      }
      args.y[at] = fmaf(args.scale, sum, y);
    }
    named_barrier(kConsumersBarrier, kConsumerThreads);  // the results are free again
  }
};

template <int kTilesN, int kStages>
__global__ void __launch_bounds__(kThreads, 1) small_layer(Shape shape, MoeFfn::Args args) {
  extern __shared__ __align__(1024) char dynamic[];
  __shared__ Shared s;
  __shared__ Work work;
  using Consumer = Consumer<kTilesN, kStages>;
  const int thread = static_cast<int>(threadIdx.x), warp = warp_id();
  if (thread < kGroups * kStages) {
    barrier_init(shared_address(&s.full[thread]), 1);
    barrier_init(shared_address(&s.empty[thread]), kGroupWarps);
    barrier_init_done();
  }
  for (int e = thread; e < shape.rule.experts; e += kThreads) s.tokens[e] = 0;
  __syncthreads();

  Pick pick;
  const int live = args.live_tokens != nullptr ? *args.live_tokens : shape.tokens;
  if (warp < shape.tokens && warp < live) {
    pick = route_of(shape.rule, args.logits + warp * shape.rule.experts, args.bias);
    if (lane_id() >= shape.rule.top_k) pick.expert = -1;
    if (pick.expert >= 0) atomicOr(&s.tokens[pick.expert], 1u << warp);
    if (!pick.usable && blockIdx.x == 0 && lane_id() == 0) atomicAdd(args.routing.unusable, 1);
  }
  __syncthreads();
  list_hits(s, shape.rule.experts);
  __syncthreads();

  if (thread == 0) work = Work(shape, s.num_hit);
  __syncthreads();
  const uint32_t ring = shared_address(dynamic);
  if (warp == kConsumers) {
    Producer<kStages> producer{s, shape, ring};
    producer.up(work, static_cast<const char*>(args.w13));
    producer.down(work, static_cast<const char*>(args.w2));
    return;
  }
  place_pick(s, shape, pick);
  named_barrier(kConsumersBarrier, kConsumerThreads);

  auto* const partials =
      reinterpret_cast<typename Consumer::Partials*>(dynamic + kGroups * kStages * kStageBytes);
  auto* const results = reinterpret_cast<float*>(partials + 1);
  auto* const hidden = static_cast<bf16*>(args.workspace);
  auto* const parts = reinterpret_cast<float*>(hidden + int64_t{shape.tokens} * shape.rule.top_k *
                                                            shape.down_blocks * 64);
  Consumer consumer{s, shape, work, ring, *partials};
  for (int item = work.items_begin; item < work.items_end; ++item) {
    consumer.up_item(item, static_cast<const bf16*>(args.x), hidden);
  }
  __threadfence();
  named_barrier(kConsumersBarrier, kConsumerThreads);
  if (thread == 0) grid_barrier(args.sync);
  named_barrier(kConsumersBarrier, kConsumerThreads);
  for (int at = work.down_begin; at < work.down_end;) {
    const Piece piece(shape, work, at);
    consumer.down_piece(piece, args, hidden, results, parts);
    at += piece.blocks;
  }
  if (blockIdx.x == gridDim.x - 1) store_routing(s, shape, args.routing);
}

// ---- the host's side

struct Plan {
  Shape shape;
  int blocks = 0;
  int shared_bytes = 0;
};

// Weight blocks of w2 for each block of threads: as even as can be, but where a few per cent more let runs end with the
// rows of blocks, there are fewer sums to join.
int down_share(int rows, int row_length, int blocks) noexcept {
  const int even = (rows * row_length + blocks - 1) / blocks;
  for (int share = even; share <= even + even / 20; ++share) {
    if (row_length % share == 0 || share % row_length == 0) return share;
  }
  return even;
}

int stages_for(int64_t tokens) noexcept { return tokens <= 8 ? 3 : 2; }

Plan plan_for(const MoeFfn::Problem& problem, int64_t tokens) noexcept {
  Plan plan;
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&plan.blocks, cudaDevAttrMultiProcessorCount, device);
  Shape& shape = plan.shape;
  shape.rule = problem.rule;
  shape.activation = problem.activation;
  shape.tokens = static_cast<int>(tokens);
  shape.width = static_cast<int>(problem.width);
  shape.up_blocks = static_cast<int>(MoePack::padded(problem.width) / 64);
  shape.down_blocks = static_cast<int>(MoePack::padded(problem.ffn_width) / 64);
  if (plan.blocks > 0) {
    shape.down_share = down_share(shape.up_blocks * 2, shape.down_blocks, plan.blocks);
  }
  const int tiles_n = tokens <= 8 ? 1 : 2;
  plan.shared_bytes = kGroups * stages_for(tokens) * kStageBytes +
                      kConsumers * 2 * tiles_n * 128 * 4 +
                      static_cast<int>(tokens) * problem.rule.top_k * kOutputs * 4;
  return plan;
}

template <int kTilesN, int kStages>
void launch(const Plan& plan, const MoeFfn::Args& args, cudaStream_t stream) noexcept {
  const auto kernel = small_layer<kTilesN, kStages>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, plan.shape, args);
}

const char* refusal(const MoeFfn::Problem& problem) noexcept {
  if (problem.weight != DType::bf16) return "needs bf16 weights";
  if (problem.width % 64 != 0 || problem.width < 64 || problem.width > 16384) {
    return "needs a width that is a multiple of 64, of at most 16384";
  }
  if (problem.ffn_width < 1) return "needs a hidden width of at least 1";
  if (problem.rule.experts > kMaxExperts) return "needs at most 256 experts";
  if (problem.rule.top_k > kMaxRows / kMaxTokens) return "needs at most 16 picks a token";
  if (problem.deterministic) return "its bits are not those of the kernels for more tokens";
  return MoeRoute::refusal({problem.rule, problem.max_tokens});
}

bool suits(const MoeFfn::Problem& problem, int64_t tokens) noexcept {
  const int static_bytes = static_cast<int>(sizeof(Shared) + sizeof(Work)) + 1024;
  return tokens <= kMaxTokens &&
         plan_for(problem, tokens).shared_bytes + static_bytes <= kMaxSharedBytes;
}

// Hidden rows, then the parts of sums that are joined.
int64_t workspace(const MoeFfn::Problem& problem) noexcept {
  const int64_t tokens = min(problem.max_tokens, int64_t{kMaxTokens});
  const int64_t parts = plan_for(problem, tokens).blocks + MoePack::padded(problem.width) / 32;
  return tokens * problem.rule.top_k * MoePack::padded(problem.ffn_width) * 2 +
         parts * tokens * kOutputs * 4;
}

void run(const MoeFfn::Problem& problem, const MoeFfn::Args& args, void* stream) noexcept {
  auto* const on = static_cast<cudaStream_t>(stream);
  if (args.tokens == 0) return;
  const Plan plan = plan_for(problem, args.tokens);
  if (args.tokens <= 8) {
    launch<1, 3>(plan, args, on);
  } else {
    launch<2, 2>(plan, args, on);
  }
  launch_next_norm(problem, args, stream);
}

}  // namespace

const MoeFfn::Kernel kMoeFfnSm90aSmall = {
    "moe_ffn.cuda.sm90a_small", 90, 90, true, refusal, suits, workspace, run};

}  // namespace switchyard::cuda
