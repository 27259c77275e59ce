// SPDX-License-Identifier: Apache-2.0
// A whole MoE layer for at most 16 tokens in one launch, bound by the stream of the hit experts' weights.
//
//   route    every block makes the same picks, one warp a token, and the same list of hit experts
//   up       items of 16 hidden columns of one expert are dealt to the blocks in turn
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
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_small.cuh"

namespace switchyard::cuda {
namespace {

using namespace small_layer;

// ---- the consumer warps

// kTilesN: n8 of tokens.
template <int kTilesN, int kStages>
struct Consumer {
  static constexpr bool kAhead = kTilesN == 1;
  using Sums = float[2][kTilesN][4];  // two m16: the rows of a weight block
  using Partials = float[kConsumers][2][kTilesN][128];

  Shared& s;
  const Shape& shape;
  const Work& work;
  uint32_t ring;
  Partials& partials;
  int group = warp_id() / kGroupWarps, member = warp_id() % kGroupWarps;
  int g = lane_id() / 4, q = lane_id() % 4;
  RingCursor<kStages> place = {};

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
    if (lane_id() == 0) barrier_arrive(shared_address(&s.empty[stage]));
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
        for (int i = 0; i < 4; ++i) partials[warp_id()][m][n][i * 32 + lane_id()] = sums[m][n][i];
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
      const int thread = static_cast<int>(threadIdx.x), j = thread / 16, column = thread % 16;
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
      for (int i = static_cast<int>(threadIdx.x) % threads; i < rows * kOutputs; i += threads) {
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
      const int pick = warp_id() * shape.rule.top_k + k, row = s.pick_row[pick];
      if (row < 0) continue;
      float result = results[row * kOutputs + lane_id()];
      if (biased) {
        result += bias_of<Product::down>(shape.down_bias, s.pick_expert[pick],
                                         piece.row_block * kOutputs + lane_id());
      }
      sum = fmaf(s.pick_weight[pick], result, sum);
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
    bool is_last = false;
    if (threadIdx.x == 0) {
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
    const bool mine = warp_id() < shape.tokens;
    const int64_t at = int64_t{warp_id()} * shape.width + piece.row_block * kOutputs + lane_id();
    const float y = mine ? args.y[at] : 0.0f;  // long before it is needed
    down_hits(piece, hidden, results);
    named_barrier(kConsumersBarrier, kConsumerThreads);
    float sum = mine ? picked(piece, results) : 0.0f;
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
__global__ void __launch_bounds__(kThreads, 1) run_layer(Shape shape, MoeFfn::Args args) {
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
  wait_for_previous();
  __syncthreads();

  Pick pick;
  const int live = args.live_tokens != nullptr ? *args.live_tokens : shape.tokens;
  const float* const logits = args.logits + warp * shape.rule.experts;
  if (warp < shape.tokens && warp < live) {
    pick = args.logits != nullptr ? route_of(shape.rule, logits, args.bias)
                                  : given_pick(shape.rule, args.routing, warp);
    if (lane_id() >= shape.rule.top_k) pick.expert = -1;
    if (pick.expert >= 0) atomicOr(&s.tokens[pick.expert], 1u << warp);
    if (!pick.usable && blockIdx.x == 0 && lane_id() == 0) atomicAdd(args.routing.unusable, 1);
  }
  __syncthreads();
  list_hits(s, shape, work);
  __syncthreads();
  const uint32_t ring = shared_address(dynamic);
  if (warp == kConsumers) {
    Producer<kStages> producer{s, shape, ring};
    producer.up(work, static_cast<const char*>(args.w13));
    producer.down(work, static_cast<const char*>(args.w2));
    return;
  }
  float weight = 0;
  if (warp < shape.tokens && warp < live) {
    weight = args.logits != nullptr ? pick_weight(shape.rule, logits, pick, lane_id())
                                    : given_weight(shape.rule, args.routing, warp);
  }
  place_pick(s, shape, pick, weight);
  named_barrier(kConsumersBarrier, kConsumerThreads);

  auto* const partials =
      reinterpret_cast<typename Consumer::Partials*>(dynamic + kGroups * kStages * kStageBytes);
  auto* const results = reinterpret_cast<float*>(partials + 1);
  auto* const hidden = static_cast<bf16*>(args.workspace);
  auto* const parts = reinterpret_cast<float*>(hidden + int64_t{shape.tokens} * shape.rule.top_k *
                                                            shape.down_blocks * 64);
  Consumer consumer{s, shape, work, ring, *partials};
  consumer.up_items(static_cast<const bf16*>(args.x), hidden);
  __threadfence();
  named_barrier(kConsumersBarrier, kConsumerThreads);
  if (thread == 0) grid_barrier(args.sync);
  named_barrier(kConsumersBarrier, kConsumerThreads);
  let_next_begin();  // all blocks are resident, so the next kernel's cannot keep one out
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
  const auto kernel = run_layer<kTilesN, kStages>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = device_chains() ? 2 : 1;
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
  if (problem.weight_on_input) return "needs weights on the output";
  return MoeRoute::refusal({problem.rule, problem.max_tokens});
}

// Up to 16 tokens the single launch is the quickest; with large experts and more than a few rows its fixed cost no longer
// matters and its lesser rate does. Measured on an H200: bench/results/notes-gpu-moe.md.
bool suits(const MoeFfn::Problem& problem, int64_t tokens) noexcept {
  if (tokens > kMaxTokens) return false;
  const int64_t expert_bytes = MoePack::w13_bytes(problem.width, problem.ffn_width) +
                               MoePack::w2_bytes(problem.width, problem.ffn_width);
  constexpr int64_t kLargeExpert = int64_t{32} << 20;
  if (expert_bytes > kLargeExpert && tokens * problem.rule.top_k > 8) return false;
  const int static_bytes = static_cast<int>(sizeof(Shared) + sizeof(Work)) + 1024;
  return plan_for(problem, tokens).shared_bytes + static_bytes <= kMaxSharedBytes;
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
  Plan plan = plan_for(problem, args.tokens);
  plan.shape.up_bias = {args.up_bias, static_cast<int>(problem.ffn_width)};
  plan.shape.down_bias = {args.down_bias, static_cast<int>(problem.width)};
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
