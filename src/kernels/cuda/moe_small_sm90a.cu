// SPDX-License-Identifier: Apache-2.0
// A whole MoE layer for at most 16 tokens in one launch, bound by the stream of the hit experts' weights.
//
//   route    every block makes the same picks, one warp a token, and the same list of hit experts; for one token the producer makes
//            them, and asks for the first weights after the first picks (moe_small_one.cuh)
//   up       blocks claim items of 16 hidden columns of one expert (moe_small_claim.cuh)
//   down     blocks claim pieces: 32 outputs x some inputs, the same for every expert. A piece goes through all hit experts; then the
//            picks of a token are summed in their order
//   join     each piece leaves its sums; the outputs are shared out among the blocks, which add up the pieces in the order of the inputs
// Blocks meet nowhere: hidden values and sums carry tags (tagged.cuh), and who reads them waits for those it reads. A barrier with its
// fences would first wait for every weight that is on its way, and leave the memory idle meanwhile.
// A stage is 32 packed rows x 256 inputs, one copy of 16 KiB. One warp produces. Four groups of four warps consume: a
// stage belongs to one group, so that four are in the works at once; a warp takes one weight block of it, as the M operand
// of mma m16n8k16. A lane reads 16 bytes of a weight row and the same 16 inputs of a token row, a permutation of the inputs
// that both operands share. Every group has a ring of its own, because a barrier tells a waiter only the parity of its
// phase: in a shared ring a group that is more than a round ahead of the others would take old bytes for new.
// All sums are f32 in an order that follows from the shape: a token's bits do not depend on its batch.
//   cost  the bytes of the hit experts once, and about 7 us of start, first bytes and end
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/moe_small_consumer.cuh"
#include "kernels/cuda/moe_small_one.cuh"
#include "kernels/cuda/moe_small_route.cuh"

namespace switchyard::cuda {
namespace {

using namespace small_layer;

// Dynamic shared memory: rings, partial sums, and behind them first x, then the results of down pieces.
template <class Consumer, int kStages>
struct Room {
  uint32_t ring;
  typename Consumer::Partials& partials;
  float* results;
  __device__ explicit Room(char* dynamic)
      : ring(shared_address(dynamic)),
        partials(*reinterpret_cast<typename Consumer::Partials*>(dynamic +
                                                                 kGroups * kStages * kStageBytes)),
        results(reinterpret_cast<float*>(&partials + 1)) {}
};

template <int kStages, class Shared>
__device__ void prepare_rings(Shared& s, uint64_t& x_landed) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kGroups * kStages) {
    barrier_init(shared_address(&s.full[thread]), 1);
    barrier_init(shared_address(&s.empty[thread]), kGroupWarps);
  }
  if (thread == 0) barrier_init(shared_address(&x_landed), 1);
  barrier_init_done();
}

// One thread. A small x is copied into shared memory, x_bytes of it; 0: it is read where it is.
__device__ void ask_for_x(const void* x, int x_bytes, float* to, uint64_t& landed) {
  if (x_bytes == 0) return;
  barrier_arrive_expect(shared_address(&landed), x_bytes);
  bulk_copy(shared_address(to), x, x_bytes, shared_address(&landed));
}

// All consumers, with the picks known: both products and the sums.
template <class Consumer>
__device__ void consume(Consumer& consumer, const Queue& queue, const MoeFfn::Args& args,
                        int x_bytes, float* results, uint64_t& x_landed) {
  const Shape& shape = consumer.shape;
  const auto* x = static_cast<const bf16*>(args.x);
  if (x_bytes > 0) {
    barrier_wait(shared_address(&x_landed), 0);
    x = reinterpret_cast<const bf16*>(results);
  }
  auto* const hidden = reinterpret_cast<uint64_t*>(args.sync + kTaggedWord);
  auto* const parts = hidden + int64_t{shape.tokens} * shape.rule.top_k * shape.down_blocks * 32;
  ClaimedItems claimed(queue);
  consumer.up_items(x, hidden, claimed);
  let_next_begin();
  const auto first = consumer.output(0);
  const float y = consumer.exists(first) ? args.y[first.at] : 0.0f;
  claimed.advance();
  for (int piece = claimed.first(); piece >= 0;) {
    consumer.down_piece(piece, hidden, results, parts);
    piece = claimed.after(piece);
    claimed.advance();
  }
  consumer.add_parts(args, parts, y);
}

// kFlat: is_flat(rule), and the logits are given. kPlaced: weights are placed by sides of the L2.
template <int kTilesN, int kStages, bool kFlat, bool kPlaced>
__global__ void __launch_bounds__(kThreads, 1)
    run_layer(const __grid_constant__ Shape shape, const __grid_constant__ MoeFfn::Args args,
              int x_bytes, const __grid_constant__ PackedBoxes boxes) {
  using Shared = SharedOf<kMaxExperts, kTilesN * 8 * kMostPicks>;
  using Consumer = Consumer<kTilesN, kStages, Shared>;
  extern __shared__ __align__(1024) char dynamic[];
  __shared__ Shared s;
  __shared__ Work work;
  __shared__ uint8_t hit_list[kMaxExperts];  // the producer's
  __shared__ Queue queue;
  __shared__ uint64_t x_landed;
  const int thread = static_cast<int>(threadIdx.x), warp = warp_id();
  const Room<Consumer, kStages> room(dynamic);
  if (kPlaced && thread == kConsumerThreads) prefetch(boxes);
  prepare_rings<kStages>(s, x_landed);
  queue.prepare(args.sides);
  for (int e = thread; e < shape.rule.experts; e += kThreads) s.tokens[e] = 0;
  __syncthreads();
  wait_for_previous();
  if (thread == kConsumerThreads) {
    ask_for_x(args.x, x_bytes, room.results, x_landed);
    queue.begin(args.sync);
  }

  Pick pick;
  const bool given = !kFlat && args.logits == nullptr;
  const int live = args.live_tokens != nullptr ? *args.live_tokens : shape.tokens;
  const float* const logits = args.logits + warp * shape.rule.experts;
  if (warp < shape.tokens && warp < live) {
    pick = given ? given_pick(shape.rule, args.routing, warp)
                 : route_of<kFlat>(shape.rule, logits, args.bias);
    if (lane_id() >= shape.rule.top_k) pick.expert = -1;
    if (pick.expert >= 0) atomicOr(&s.tokens[pick.expert], 1u << warp);
    if (!pick.usable && blockIdx.x == 0 && lane_id() == 0) atomicAdd(args.routing.unusable, 1);
  }
  __syncthreads();
  if (warp == kConsumers) {
    Producer<kPlaced, kStages, Shared> producer{s, shape, room.ring, boxes};
    KnownPicks known{hit_list};
    const int hits = list_experts(s, shape, hit_list);
    return produce_claimed(producer, queue, Work(shape, hits), args, hits, known);
  }
  list_hits(s, shape, work);
  named_barrier(kConsumersBarrier, kConsumerThreads);
  float weight = 0;
  if (warp < shape.tokens && warp < live) {
    weight = given
                 ? given_weight(shape.rule, args.routing, warp)
                 : pick_weight(kFlat ? flat_rule(shape.rule) : shape.rule, logits, pick, lane_id());
  }
  place_pick(s, shape, pick, weight);
  named_barrier(kConsumersBarrier, kConsumerThreads);
  Consumer consumer{s, shape, work, room.ring, room.partials, queue.tag()};
  consume(consumer, queue, args, x_bytes, room.results, x_landed);
  if (blockIdx.x == gridDim.x - 1) store_routing(s, shape, args.routing);
}

// The same for one token that comes with its logits, and a flat rule.
template <int kStages, int kPerLane, bool kPlaced>
__global__ void __launch_bounds__(kThreads, 1)
    run_layer_of_one(const __grid_constant__ Shape shape, const __grid_constant__ MoeFfn::Args args,
                     int x_bytes, const __grid_constant__ PackedBoxes boxes) {
  using Consumer = Consumer<1, kStages, SharedOne>;
  extern __shared__ __align__(1024) char dynamic[];
  __shared__ SharedOne s;
  __shared__ Queue queue;
  __shared__ uint64_t x_landed;
  const int thread = static_cast<int>(threadIdx.x), warp = warp_id();
  const Room<Consumer, kStages> room(dynamic);
  if (kPlaced && thread == kConsumerThreads) prefetch(boxes);
  prepare_rings<kStages>(s, x_landed);
  queue.prepare(args.sides);
  lay_out_one(s, shape);
  __syncthreads();
  wait_for_previous();
  if (warp == kConsumers) {
    LazyPicks<kPerLane> picks(s, flat_rule(shape.rule), args.logits, args.bias);
    const bool live = args.live_tokens == nullptr || *args.live_tokens > 0;
    if (!live) picks.settle(false);
    Producer<kPlaced, kStages, SharedOne> producer{s, shape, room.ring, boxes};
    const int hits = live ? shape.rule.top_k : 0;
    return produce_claimed(producer, queue, Work(shape, hits), args, hits, picks);
  }
  if (thread == kConsumerThreads - 32) {
    queue.begin(args.sync);
    ask_for_x(args.x, x_bytes, room.results, x_landed);
  }
  barrier_wait(shared_address(&s.ready), 0);
  if (warp == 0) weigh_picks(s, shape, args);
  Consumer consumer{s, shape, s.work, room.ring, room.partials, queue.tag()};
  consume(consumer, queue, args, x_bytes, room.results, x_landed);
  if (blockIdx.x == gridDim.x - 1) store_routing(s, shape, args.routing);
}

// ---- the host's side

struct Plan {
  Shape shape;
  int blocks = 0;
  int x_bytes = 0;  // of x in shared memory; 0: it is read where it is
  int shared_bytes = 0;
  int64_t tagged_words = 0;  // of Args::sync, 64 bits each
};

int stages_for(int64_t tokens) noexcept { return tokens <= 8 ? 3 : 2; }

// Static shared memory of the kernels; `alone`: of the one for a single token. The compiler rounds it up to the rings' alignment.
int static_bytes(int64_t tokens, bool alone) noexcept {
  constexpr int kRest = static_cast<int>(sizeof(Work) + sizeof(Queue)) + kMaxExperts + 64;
  const auto bytes =
      static_cast<int>(alone         ? sizeof(SharedOne)
                       : tokens <= 8 ? sizeof(SharedOf<kMaxExperts, 8 * kMostPicks>)
                                     : sizeof(SharedOf<kMaxExperts, 16 * kMostPicks>));
  return (bytes + kRest + 1023) / 1024 * 1024;
}

// A single token has a kernel of its own where it makes its picks by a rule without groups.
bool runs_alone(const MoeFfn::Problem& problem, const MoeFfn::Args& args) noexcept {
  return args.tokens == 1 && is_flat(problem.rule) && args.logits != nullptr;
}

Plan plan_for(const MoeFfn::Problem& problem, int64_t tokens, bool alone) noexcept {
  Plan plan;
  plan.blocks = num_multiprocessors();
  plan.shape = shape_of(problem, tokens, plan.blocks);
  const int tiles_n = tokens <= 8 ? 1 : 2, num_tokens = static_cast<int>(tokens);
  const int before =
      kGroups * stages_for(tokens) * kStageBytes + kConsumers * 2 * tiles_n * 128 * 4;
  const int results = num_tokens * problem.rule.top_k * kOutputs * 4;
  plan.x_bytes = num_tokens * plan.shape.width * 2;
  if (before + plan.x_bytes + static_bytes(tokens, alone) > kMaxSharedBytes) plan.x_bytes = 0;
  plan.shared_bytes = before + max(results, plan.x_bytes);
  const Shape& shape = plan.shape;
  const int64_t pieces = int64_t{shape.up_blocks} * 2 *
                         ((shape.down_blocks + shape.piece_blocks - 1) / shape.piece_blocks);
  plan.tagged_words =
      tokens * (int64_t{problem.rule.top_k} * shape.down_blocks * 32 + pieces * kOutputs);
  return plan;
}

using LayerKernel = void (*)(const Shape, const MoeFfn::Args, int x_bytes, const PackedBoxes);

PackedBoxes boxes_of(const MoeFfn::Problem& problem, const MoeFfn::Args& args) noexcept {
  const int64_t experts = problem.rule.experts;
  return packed_boxes(args.w13, experts * MoePack::w13_bytes(problem.width, problem.ffn_width),
                      args.w2, experts * MoePack::w2_bytes(problem.width, problem.ffn_width),
                      args.sides);
}

void launch(LayerKernel kernel, const Plan& plan, const MoeFfn::Args& args,
            const PackedBoxes& boxes, cudaStream_t stream) noexcept {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  launch_chained(kernel, dim3(static_cast<unsigned>(plan.blocks)), kThreads,
                 static_cast<size_t>(plan.shared_bytes), stream, plan.shape, args, plan.x_bytes,
                 boxes);
}

const char* refusal(const MoeFfn::Problem& problem) noexcept {
  if (problem.weight != DType::bf16) return "needs bf16 weights";
  if (problem.width % 64 != 0 || problem.width < 64 || problem.width > 16384) {
    return "needs a width that is a multiple of 64, of at most 16384";
  }
  if (problem.ffn_width < 1) return "needs a hidden width of at least 1";
  if (problem.rule.experts > kMaxExperts) return "needs at most 256 experts";
  if (problem.rule.top_k > kMostPicks) return "needs at most 16 picks a token";
  if (problem.deterministic) return "its bits are not those of the kernels for more tokens";
  if (problem.weight_on_input) return "needs weights on the output";
  return MoeRoute::refusal({problem.rule, problem.max_tokens});
}

// Up to 16 tokens the single launch is the quickest, with large experts up to 8: with two tiles of tokens it does not keep up with the
// memory there. Measured on an H200: bench/results/notes-gpu-moe.md.
bool suits(const MoeFfn::Problem& problem, int64_t tokens) noexcept {
  if (tokens > kMaxTokens) return false;
  const int64_t expert_bytes = MoePack::w13_bytes(problem.width, problem.ffn_width) +
                               MoePack::w2_bytes(problem.width, problem.ffn_width);
  constexpr int64_t kLargeExpert = int64_t{32} << 20;
  if (expert_bytes > kLargeExpert && tokens > 8) return false;
  const Plan plan = plan_for(problem, tokens, false);  // which the other fits as well
  if (plan.tagged_words > (MoeFfn::kSyncWords - kTaggedWord) / 2) return false;
  return plan.shared_bytes + static_bytes(tokens, false) <= kMaxSharedBytes;
}

// What blocks tell each other lies in Args::sync.
int64_t workspace(const MoeFfn::Problem&) noexcept { return 0; }

template <bool kPlaced>
LayerKernel kernel_for(const MoeFfn::Problem& problem, const MoeFfn::Args& args) noexcept {
  if (runs_alone(problem, args)) {
    return problem.rule.experts <= 128 ? run_layer_of_one<3, 4, kPlaced>
                                       : run_layer_of_one<3, kMaxExperts / 32, kPlaced>;
  }
  const bool flat = is_flat(problem.rule) && args.logits != nullptr;
  if (args.tokens > 8) {
    return flat ? run_layer<2, 2, true, kPlaced> : run_layer<2, 2, false, kPlaced>;
  }
  return flat ? run_layer<1, 3, true, kPlaced> : run_layer<1, 3, false, kPlaced>;
}

void run(const MoeFfn::Problem& problem, const MoeFfn::Args& args, void* stream) noexcept {
  auto* const on = static_cast<cudaStream_t>(stream);
  if (args.tokens == 0) return;
  Plan plan = plan_for(problem, args.tokens, runs_alone(problem, args));
  plan.shape.side_mask = args.sides.mask;
  plan.shape.up_bias = {args.up_bias, static_cast<int>(problem.ffn_width)};
  plan.shape.down_bias = {args.down_bias, static_cast<int>(problem.width)};
  const bool placed = args.sides.mask != 0;
  launch(placed ? kernel_for<true>(problem, args) : kernel_for<false>(problem, args), plan, args,
         placed ? boxes_of(problem, args) : PackedBoxes{}, on);
  launch_next_norm(problem, args, stream);
}

}  // namespace

const MoeFfn::Kernel kMoeFfnSm90aSmall = {
    "moe_ffn.cuda.sm90a_small", 90, 90, true, refusal, suits, workspace, run};

}  // namespace switchyard::cuda
