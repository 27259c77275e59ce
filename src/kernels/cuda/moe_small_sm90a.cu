// SPDX-License-Identifier: Apache-2.0
// A whole MoE layer for at most 16 tokens in one launch, bound by the stream of the hit experts' weights.
//
//   route    every block makes the same picks, one warp a token, and the same list of hit experts
//   up       items of 16 hidden columns of one expert are dealt to the blocks as equal runs; a stage is 32 packed rows x
//            256 inputs, one bulk copy of 16 KiB
//   barrier  over the grid; meanwhile the producer goes on and fills the ring with w2
//   down     a block owns 8 to 64 rows of w2 and takes them through all hit experts, so the sum over the picks of a
//            token stays inside the block: in f32, in the order of the picks, without atomics
// One warp produces. Four groups of four warps consume: a stage belongs to one group, so that four are in the works at
// once. Every group has a ring of its own, because a barrier tells a waiter only the parity of its phase: in a shared ring
// a group that is more than a round ahead of the others would take old bytes for new. Weights are the M operand of mma m16n8k16; a lane reads 16 bytes of a weight row and the same 16 inputs of a
// token row, a permutation of the inputs that both operands share. Which group takes which part of a sum depends on
// the expert's own stages alone: a token's bits do not depend on its batch.
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
constexpr int kUpBlocks = kStageBytes / MoePack::kBlockBytes;  // blocks of 64 inputs in a stage
constexpr int kMaxStages = 3;                                  // of the ring of a group
constexpr int kMaxSharedBytes = 227 * 1024;
constexpr int kUnits = 4;  // pairs of m16n8k16 steps of one warp in a stage

// Barriers of the block by number; 0 is __syncthreads.
constexpr int kConsumersBarrier = 1, kGroupBarrier = 2;

struct Shape {
  RouteRule rule;
  GluActivation activation = GluActivation::swiglu;
  int tokens = 0, width = 0;
  int up_blocks = 0;     // blocks of 64 inputs: Dp / 64
  int down_blocks = 0;   // Fp / 64
  int down_atoms = 0;    // of 8 rows of w2, of a block of threads
  int stage_blocks = 0;  // of 64 inputs, in a stage of w2
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
  int items_begin, items_end;  // of w13: (hit, 16 hidden columns)
  int item_stages;             // of one item
  int tiles;                   // items of one hit
  int first_atom, atoms;       // of w2; 0: none
  int hit_stages;              // of w2, of one hit
  bool split;  // a hit's stages of w2 go round the groups; else they are one group's

  Work() = default;
  __device__ Work(const Shape& shape, int hits) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    tiles = shape.down_blocks * 4;
    const int items = hits * tiles;
    items_begin = items * block / blocks;
    items_end = items * (block + 1) / blocks;
    item_stages = (shape.up_blocks + kUpBlocks - 1) / kUpBlocks;
    first_atom = block * shape.down_atoms;
    atoms = min(shape.down_atoms, max(0, shape.up_blocks * 8 - first_atom));
    hit_stages = (shape.down_blocks + shape.stage_blocks - 1) / shape.stage_blocks;
    split = hit_stages >= kGroups;
  }
};

// ---- the producer warp

template <int kStages>
struct Producer {
  Shared& s;
  const Shape& shape;
  uint32_t ring;
  RingPlace<kStages> places[kGroups] = {};

  // Waits for the group's next stage to be free; returns its full barrier, and its address in `to`.
  __device__ uint32_t begin_stage(int group, uint32_t bytes, uint32_t& to) {
    uint32_t at = 0, parity = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {  // an index that is known keeps the places in registers
      if (i != group) continue;
      at = i * kStages + places[i].slot;
      parity = places[i].parity;
      places[i].advance();
    }
    barrier_wait(shared_address(&s.empty[at]), parity ^ 1);
    const uint32_t full = shared_address(&s.full[at]);
    if (lane_id() == 0) barrier_arrive_expect(full, bytes);
    to = ring + at * kStageBytes;
    return full;
  }

  __device__ void up(const Work& work, const char* w13) {
    const int64_t tile_bytes = int64_t{shape.up_blocks} * MoePack::kBlockBytes;
    for (int item = work.items_begin; item < work.items_end; ++item) {
      const int64_t expert = s.hit_expert[item / work.tiles];
      const char* from = w13 + (expert * work.tiles + item % work.tiles) * tile_bytes;
      for (int c = 0; c < work.item_stages; ++c) {
        const int done = c * kUpBlocks;
        const uint32_t bytes = min(kUpBlocks, shape.up_blocks - done) * MoePack::kBlockBytes;
        uint32_t to;
        const uint32_t full = begin_stage(c % kGroups, bytes, to);
        if (lane_id() == 0) bulk_copy(to, from + done * MoePack::kBlockBytes, bytes, full);
      }
    }
  }

  __device__ void down(const Work& work, const char* w2) {
    if (work.atoms == 0) return;
    const int64_t expert_bytes =
        int64_t{shape.up_blocks} * 2 * shape.down_blocks * MoePack::kBlockBytes;
    for (int hit = 0; hit < s.num_hit; ++hit) {
      const char* from = w2 + s.hit_expert[hit] * expert_bytes;
      for (int c = 0; c < work.hit_stages; ++c) {
        const int done = c * shape.stage_blocks;
        const int inputs = min(shape.stage_blocks, shape.down_blocks - done);
        uint32_t to;
        const uint32_t full = begin_stage((work.split ? c : hit) % kGroups,
                                          inputs * work.atoms * MoePack::kAtomBytes, to);
        copy_atoms(work, from + done * MoePack::kBlockBytes, inputs, to, full);
      }
    }
  }

  // In a stage the block's atoms of 64 inputs follow each other. They are runs of atoms of one to three weight blocks.
  __device__ void copy_atoms(const Work& work, const char* from, int inputs, uint32_t to,
                             uint32_t full) const {
    const int64_t block_row_bytes = int64_t{shape.down_blocks} * MoePack::kBlockBytes;
    const int first_block = work.first_atom / 4, end_atom = work.first_atom + work.atoms;
    if (work.atoms == 4 && work.first_atom % 4 == 0) {
      if (lane_id() == 0) {
        bulk_copy(to, from + first_block * block_row_bytes, inputs * MoePack::kBlockBytes, full);
      }
      return;
    }
    const int runs = (end_atom - 1) / 4 - first_block + 1;
    for (int i = lane_id(); i < inputs * runs; i += 32) {
      const int input = i / runs, block = first_block + i % runs;
      const int begin = max(block * 4, work.first_atom), end = min(block * 4 + 4, end_atom);
      bulk_copy(to + (input * work.atoms + begin - work.first_atom) * MoePack::kAtomBytes,
                from + block * block_row_bytes + input * MoePack::kBlockBytes +
                    begin % 4 * MoePack::kAtomBytes,
                (end - begin) * MoePack::kAtomBytes, full);
    }
  }
};

// ---- the consumer warps

// kTilesN: n8 of tokens. kTilesM: m16 of the block's rows of w2; 4 / kTilesM warps of a group share one.
template <int kTilesN, int kTilesM, int kStages>
struct Consumer {
  static constexpr int kShares = kGroupWarps / kTilesM;
  using Sums = float[kTilesN][4];
  using Partials = float[kConsumers][kTilesN][128];

  Shared& s;
  const Shape& shape;
  const Work& work;
  uint32_t ring;
  Partials* partials;  // [2]
  int turn = 0;        // which of the two is next
  int group = warp_id() / kGroupWarps, member = warp_id() % kGroupWarps;
  int g = lane_id() / 4, q = lane_id() % 4;
  RingPlace<kStages> place = {};

  // Waits for the group's next stage and returns its address.
  __device__ uint32_t await_stage() const {
    const uint32_t at = group * kStages + place.slot;
    barrier_wait(shared_address(&s.full[at]), place.parity);
    return ring + at * kStageBytes;
  }
  __device__ void release_stage() {
    __syncwarp();
    if (lane_id() == 0) barrier_arrive(shared_address(&s.empty[group * kStages + place.slot]));
    place.advance();
  }
  __device__ void keep(const Sums& sums, int tiles) {
    float(&to)[kTilesN][128] = partials[turn][warp_id()];
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (n >= tiles) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i * 32 + lane_id()] = sums[n][i];
    }
  }
  static __device__ void add(Sums& sums, const uint4& upper, const uint4& lower,
                             const uint4 (&tokens)[kTilesN], int tiles) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (n >= tiles) break;
      mma_bf16(sums[n], upper.x, lower.x, upper.y, lower.y, tokens[n].x, tokens[n].y);
      mma_bf16(sums[n], upper.z, lower.z, upper.w, lower.w, tokens[n].z, tokens[n].w);
    }
  }
  __device__ uint4 read(uint32_t address) const {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
  }

  // One item: warps are 2 halves of its rows (8 gate, 8 up) x 2 halves of a stage's inputs.
  __device__ void up_item(int item, const bf16* x, bf16* hidden) {
    const int hit = item / work.tiles, first_row = s.hit_row[hit];
    const int rows = s.hit_row[hit + 1] - first_row, tiles = (rows + 7) / 8;
    const int half = member % 2, share = member / 2;
    const bf16* token[kTilesN];
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      token[n] = x + int64_t{s.row_token[first_row + min(n * 8 + g, rows - 1)]} * shape.width +
                 share * 128 + q * 8;
    }
    Sums sums = {};
    for (int c = group; c < work.item_stages; c += kGroups) {
      const int units = min(kUnits, (shape.up_blocks - c * kUpBlocks - share * 2) * 2);
      uint4 tokens[kUnits][kTilesN] = {};
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
#pragma unroll
        for (int n = 0; n < kTilesN; ++n) {
          if (n >= tiles || u >= units) break;
          tokens[u][n] = __ldg(reinterpret_cast<const uint4*>(token[n] + c * 256 + u * 32));
        }
      }
      const uint32_t stage = await_stage() + share * (kStageBytes / 2) + half * 2048 + g * 128;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        if (u >= units) break;
        const uint32_t from = stage + u / 2 * MoePack::kBlockBytes + ((u % 2 * 4 + q ^ g) << 4);
        add(sums, read(from), read(from + MoePack::kAtomBytes), tokens[u], tiles);
      }
      release_stage();
    }
    keep(sums, tiles);
    named_barrier(kConsumersBarrier, kConsumerThreads);
    if (threadIdx.x < 128u * tiles) store_hidden(first_row, rows, item % work.tiles, hidden);
    turn ^= 1;
  }

  // Thread: (8 tokens, half of the item's rows, token, hidden column).
  __device__ void store_hidden(int first_row, int rows, int tile, bf16* hidden) {
    const int thread = static_cast<int>(threadIdx.x);
    const int n = thread / 128, half = thread / 64 % 2, j = thread / 8 % 8, column = thread % 8;
    if (n * 8 + j >= rows) return;
    const int at = j % 2 * 32 + column * 4 + j / 2;
    float gate = 0, up = 0;
#pragma unroll
    for (int w = half; w < kConsumers; w += 2) {
      gate += partials[turn][w][n][at];
      up += partials[turn][w][n][64 + at];
    }
    hidden[int64_t{first_row + n * 8 + j} * shape.down_blocks * 64 + tile * 16 + half * 8 +
           column] = __float2bfloat16(glu(shape.activation, gate, up));
  }

  // One hit expert's part of the block's rows of w2: into results [rows, 8 atoms].
  __device__ void down_hit(int hit, const bf16* hidden, float* results) {
    const int first_row = s.hit_row[hit], rows = s.hit_row[hit + 1] - first_row;
    const int tiles = (rows + 7) / 8;
    const int tile_m = member % kTilesM, share = member / kTilesM;
    const int width = shape.down_blocks * 64;
    const bf16* token[kTilesN];
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      token[n] = hidden + int64_t{first_row + min(n * 8 + g, rows - 1)} * width + q * 8;
    }
    Sums sums = {};
    const int step = work.split ? kGroups : 1;
    for (int c = work.split ? group : 0; c < work.hit_stages; c += step) {
      const int begin = c * shape.stage_blocks;
      const int units = min(shape.stage_blocks, shape.down_blocks - begin) * 2;
      uint4 tokens[kUnits][kTilesN] = {};
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int unit = u * kShares + share;
#pragma unroll
        for (int n = 0; n < kTilesN; ++n) {
          if (n >= tiles || unit >= units) break;
          tokens[u][n] = __ldcg(reinterpret_cast<const uint4*>(token[n] + begin * 64 + unit * 32));
        }
      }
      const uint32_t stage = await_stage() + tile_m * 2048 + g * 128;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int unit = u * kShares + share;
        if (unit >= units || tile_m * 2 >= work.atoms) break;
        const uint32_t from =
            stage + unit / 2 * (work.atoms * MoePack::kAtomBytes) + ((unit % 2 * 4 + q ^ g) << 4);
        add(sums, read(from), read(from + MoePack::kAtomBytes), tokens[u], tiles);
      }
      release_stage();
    }
    keep(sums, tiles);
    const int threads = work.split ? kConsumerThreads : kGroupWarps * 32;
    named_barrier(work.split ? kConsumersBarrier : kGroupBarrier + group, threads);
    const int out_rows = work.atoms * 8;
    for (int i = static_cast<int>(threadIdx.x) % threads; i < rows * out_rows; i += threads) {
      results[(first_row + i / out_rows) * out_rows + i % out_rows] =
          total(i / out_rows, i % out_rows, work.split ? 0 : group, work.split ? kGroups : 1);
    }
    turn ^= 1;
  }

  // The sum of the partial results of one (token row, row of w2), in a fixed order.
  __device__ float total(int j, int row, int first_group, int groups) const {
    const int at = (j % 2 + row % 16 / 8 * 2) * 32 + row % 8 * 4 + j % 8 / 2;
    float sum = 0;
    for (int i = 0; i < groups; ++i) {
#pragma unroll
      for (int share = 0; share < kShares; ++share) {
        const int warp = (first_group + i) * kGroupWarps + share * kTilesM + row / 16;
        sum += partials[turn][warp][j / 8][at];
      }
    }
    return sum;
  }
};

// The residual stream's new value: see MoeFfn.
__device__ float combined(const Shared& s, const Shape& shape, const MoeFfn::Args& args,
                          const float* results, int out_rows, int t, int row, int column, float y) {
  float sum = 0;
  for (int k = 0; k < shape.rule.top_k; ++k) {
    const int from = s.pick_row[t * shape.rule.top_k + k];
    if (from < 0) continue;
    sum = fmaf(s.pick_weight[t * shape.rule.top_k + k], results[from * out_rows + row], sum);
  }
  if (args.shared != nullptr) {
    const float weight = args.shared_weight != nullptr ? args.shared_weight[t] : 1.0f;
    sum = fmaf(weight, args.shared[int64_t{t} * shape.width + column], sum);
  }
  return fmaf(args.scale, sum, y);
}

template <int kTilesN, int kTilesM, int kStages>
__global__ void __launch_bounds__(kThreads, 1) small_layer(Shape shape, MoeFfn::Args args) {
  extern __shared__ __align__(1024) char dynamic[];
  __shared__ Shared s;
  __shared__ Work work;
  using Consumer = Consumer<kTilesN, kTilesM, kStages>;
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
    pick = route_token<kMaxExperts / 32>(shape.rule, args.logits + warp * shape.rule.experts,
                                         args.bias, lane_id());
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
  auto* const results = reinterpret_cast<float*>(partials + 2);
  auto* const hidden = static_cast<bf16*>(args.workspace);
  Consumer consumer{s, shape, work, ring, partials};
  for (int item = work.items_begin; item < work.items_end; ++item) {
    consumer.up_item(item, static_cast<const bf16*>(args.x), hidden);
  }

  // The residual stream is read while other blocks finish.
  const int out_rows = work.atoms * 8, outputs = shape.tokens * out_rows;
  float y[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = thread + i * kConsumerThreads;
    if (at >= outputs) break;
    const int column = work.first_atom * 8 + at % out_rows;
    y[i] = args.y[int64_t{at / out_rows} * shape.width + column];
  }
  __threadfence();
  named_barrier(kConsumersBarrier, kConsumerThreads);
  if (thread == 0) grid_barrier(args.sync);
  named_barrier(kConsumersBarrier, kConsumerThreads);
  if (blockIdx.x == gridDim.x - 1) store_routing(s, shape, args.routing);
  if (work.atoms == 0) return;

  for (int hit = work.split ? 0 : consumer.group; hit < s.num_hit;
       hit += work.split ? 1 : kGroups) {
    consumer.down_hit(hit, hidden, results);
  }
  named_barrier(kConsumersBarrier, kConsumerThreads);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = thread + i * kConsumerThreads;
    if (at >= outputs) break;
    const int t = at / out_rows, row = at % out_rows, column = work.first_atom * 8 + row;
    args.y[int64_t{t} * shape.width + column] =
        combined(s, shape, args, results, out_rows, t, row, column, y[i]);
  }
}

// ---- the host's side

struct Plan {
  Shape shape;
  int blocks = 0, tiles_m = 0;  // tiles_m 0: does not fit
  int shared_bytes = 0;
};

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
  shape.down_atoms = (shape.up_blocks * 8 + plan.blocks - 1) / plan.blocks;
  const int tiles_m = shape.down_atoms <= 2 ? 1 : shape.down_atoms <= 4 ? 2 : 4;
  const int most = min(kStageBytes / MoePack::kAtomBytes / shape.down_atoms,
                       kUnits * (kGroupWarps / tiles_m) / 2);
  const int stages = most == 0 ? 1 : (shape.down_blocks + most - 1) / most;
  shape.stage_blocks = (shape.down_blocks + stages - 1) / stages;
  const int tiles_n = tokens <= 8 ? 1 : 2;
  plan.shared_bytes = kGroups * stages_for(tokens) * kStageBytes +
                      2 * kConsumers * tiles_n * 128 * 4 +
                      static_cast<int>(tokens) * problem.rule.top_k * shape.down_atoms * 8 * 4;
  const int static_bytes = static_cast<int>(sizeof(Shared));
  const bool fits = shape.down_atoms <= 8 && plan.shared_bytes + static_bytes <= kMaxSharedBytes;
  plan.tiles_m = fits ? tiles_m : 0;
  return plan;
}

template <int kTilesN, int kTilesM, int kStages>
void launch(const Plan& plan, const MoeFfn::Args& args, cudaStream_t stream) noexcept {
  const auto kernel = small_layer<kTilesN, kTilesM, kStages>;
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

template <int kTilesM>
void launch_for_tokens(const Plan& plan, const MoeFfn::Args& args, cudaStream_t stream) noexcept {
  if (args.tokens <= 8) return launch<1, kTilesM, 3>(plan, args, stream);
  launch<2, kTilesM, 2>(plan, args, stream);
}

const char* refusal(const MoeFfn::Problem& problem) noexcept {
  if (problem.weight != DType::bf16) return "needs bf16 weights";
  if (problem.width % 64 != 0 || problem.width < 64)
    return "needs a width that is a multiple of 64";
  if (problem.ffn_width < 1) return "needs a hidden width of at least 1";
  if (problem.rule.experts > kMaxExperts) return "needs at most 256 experts";
  if (problem.rule.top_k > kMaxRows / kMaxTokens) return "needs at most 16 picks a token";
  if (problem.deterministic) return "its bits are not those of the kernels for more tokens";
  return MoeRoute::refusal({problem.rule, problem.max_tokens});
}

bool suits(const MoeFfn::Problem& problem, int64_t tokens) noexcept {
  return tokens <= kMaxTokens && plan_for(problem, tokens).tiles_m > 0;
}

int64_t workspace(const MoeFfn::Problem& problem) noexcept {
  const int64_t tokens = min(problem.max_tokens, int64_t{kMaxTokens});
  return tokens * problem.rule.top_k * MoePack::padded(problem.ffn_width) * 2;
}

void run(const MoeFfn::Problem& problem, const MoeFfn::Args& args, void* stream) noexcept {
  auto* const on = static_cast<cudaStream_t>(stream);
  if (args.tokens == 0) return;
  const Plan plan = plan_for(problem, args.tokens);
  if (plan.tiles_m == 1) launch_for_tokens<1>(plan, args, on);
  if (plan.tiles_m == 2) launch_for_tokens<2>(plan, args, on);
  if (plan.tiles_m == 4) launch_for_tokens<4>(plan, args, on);
  launch_next_norm(problem, args, stream);
}

}  // namespace

const MoeFfn::Kernel kMoeFfnSm90aSmall = {
    "moe_ffn.cuda.sm90a_small", 90, 90, true, refusal, suits, workspace, run};

}  // namespace switchyard::cuda
