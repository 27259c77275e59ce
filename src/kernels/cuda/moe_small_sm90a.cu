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
#include "kernels/cuda/moe_small_consumer.cuh"

namespace switchyard::cuda {
namespace {

using namespace small_layer;

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

int stages_for(int64_t tokens) noexcept { return tokens <= 8 ? 3 : 2; }

Plan plan_for(const MoeFfn::Problem& problem, int64_t tokens) noexcept {
  Plan plan;
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&plan.blocks, cudaDevAttrMultiProcessorCount, device);
  plan.shape = shape_of(problem, tokens, plan.blocks);
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
