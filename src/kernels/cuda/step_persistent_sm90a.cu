// SPDX-License-Identifier: Apache-2.0
// The layers of a decode step of one token in a single launch: one block a multiprocessor, resident from the first layer to the last.
//
// Such a step is a chain of short phases, bound by bytes only if the memory is never idle between them. So the blocks stay, and
//   feed       one thread streams every weight of the step, in the order of its use, into the rings of moe_small.cuh: over the borders of
//              phases and layers, as far ahead as there is room (192 KiB a multiprocessor). Of the experts' weights only the first come
//              before the picks, as guessed
//   deal       weights of experts that are placed by the sides of the L2 are read by blocks near them (persistent_deal.cuh)
//   scout      one warp, a layer ahead: the layer's description, and what is small into the L2 (persistent_scout.cuh)
//   foresight  two warps: guesses of the picks, from the stream before attention (persistent_foresight.cuh)
//   consumers  sixteen warps (persistent_walk.cuh):  norm, q k v | attention | output, gate | picks, norm, experts up | experts down
// At each bar the blocks meet in memory: a counter of arrivals, values that carry a tag, or sums that count who has added. No block waits for more than it reads.
//   x          f32, in every block as a whole; what the experts add is summed by who reads it (PartRange)
//   sums       f32 in an order that follows from the shape: the same call gives the same bits. They are not the bits of steps of more tokens
// What costs most here is what does not look it: a spilled register (the blocks leave 20 KiB of L1: spills go to the L2), a fence while
// weights stream (it waits for the copies that are on their way, so these are kept few), a read from memory behind them (hence the scout).
// Floor: the bytes of the touched weights and of K and V, once.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/persistent_feed.cuh"
#include "kernels/cuda/persistent_foresight.cuh"
#include "kernels/cuda/persistent_scout.cuh"
#include "kernels/cuda/persistent_walk.cuh"

namespace switchyard::cuda {
namespace {

using namespace persistent;

// One thread.
__device__ __forceinline__ void produce(const PersistentStep& step, const Plan& plan, Block& block,
                                        const PackedBoxes& boxes, uint32_t ring) {
  prefetch(boxes);
  Feed feed(block.s, step, plan, boxes, ring);
#pragma unroll 1
  for (int l = 0; l < step.layers; ++l) {
    barrier_wait(shared_address(&block.described), l & 1);
    const PersistentLayer& layer = block.layer[l & 1];
    feed.dense(plan.qkv, layer.qkv, kQkvCopies);
    feed.dense(plan.output, layer.output, kOutputCopies);
    const bool guesses = plan.guessed_stages > 0 && block.rank < block.work.items;
    if (guesses) {  // a block without items might wait for a phase that is over: nobody waits for it
      barrier_wait(shared_address(&block.guessed), l & 1);
      feed.guess(block, plan.guessed_stages, static_cast<const char*>(layer.w13));
    }
    barrier_wait(shared_address(&block.routed), l & 1);
    feed.up(block, plan.guessed_stages, static_cast<const char*>(layer.w13));
    feed.down(block, static_cast<const char*>(layer.w2));
  }
}

__device__ void prepare_block(const PersistentStep& step, const Plan& plan, Block& block) {
  const Shape& shape = plan.shape;
  const int thread = static_cast<int>(threadIdx.x), top_k = shape.rule.top_k;
  if (thread < kGroups * kStages) {
    barrier_init(shared_address(&block.s.full[thread]), 1);
    barrier_init(shared_address(&block.s.empty[thread]), kGroupWarps);
  }
  if (thread == 0) {
    barrier_init(shared_address(&block.routed), Candidates::warps(shape.rule));
    barrier_init(shared_address(&block.described), 1);
    barrier_init(shared_address(&block.rows_there), 1);
    barrier_init(shared_address(&block.rows_read), 2);
    barrier_init(shared_address(&block.guessed), 1);
    block.s.num_hit = top_k;
    block.s.hit_row[top_k] = top_k;
    block.work = Work(shape, top_k);
    block.events = static_cast<Events*>(step.workspace);
    block.qkv_stages = plan.qkv.of_block();
    block.output_stages = plan.output.of_block();
  }
  if (thread < shape.width / kOutputs) {
    block.part[thread] = parts_of(plan, thread);
  }
  if (thread < kConsumers) {
    block.qkv_place[thread] = plan.qkv.place(thread % kGroupWarps);
    block.output_place[thread] = plan.output.place(thread % kGroupWarps);
  }
  if (thread < kMostGuessed) block.guessed_place[thread] = kNoPlace;
  if (thread < top_k) {
    block.guess[thread] = thread;
    block.s.hit_row[thread] = thread;
    block.s.row_token[thread] = 0;
  }
  barrier_init_done();
}

// What depends on the step's arrays; one thread.
__device__ void prepare_span(const PersistentStep& step, const Plan& plan, Block& block) {
  Span& span = block.span;
  span.find(step);
  for (int t = 0; t < kChunkTiles; ++t) {
    const int first = span.begin + t * kCacheTile;
    block.tile_row[0][t] = first < span.end ? span.row_of(step, first) : 0;
  }
  const int slot = *step.slot, tokens = step.block_tokens;
  block.cache_row = (slot / tokens * step.kv_heads + span.head) * tokens + slot % tokens;
  block.turn_row = 0;
  block.epoch =
      *reinterpret_cast<const uint32_t*>(static_cast<const char*>(step.workspace) + plan.at.epoch);
}

template <int kZ>
__global__ void __launch_bounds__(kStepThreads, 1)
    persistent_kernel(const __grid_constant__ PersistentStep step,
                      const __grid_constant__ Plan plan,
                      const __grid_constant__ PackedBoxes boxes) {
  extern __shared__ __align__(1024) char dynamic[];
  __shared__ Block block;
  prepare_block(step, plan, block);
  __syncthreads();
  wait_for_previous();
  if (threadIdx.x == 0) prepare_span(step, plan, block);
  if (threadIdx.x == kConsumerThreads) deal_experts(step.sides, plan, block);
  if (threadIdx.x < kZ) {
    const int row = *step.rope_row * (kZ / 2), at = threadIdx.x % (kZ / 2);
    const bool sine = threadIdx.x >= kZ / 2;
    block.turn[sine][at] = (sine ? step.sin : step.cos)[row + at];
  }
  __syncthreads();
  if (warp_id() >= kConsumers) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumerThreads) produce(step, plan, block, boxes, shared_address(dynamic));
    if (warp_id() == kConsumers + 1) Scout(step, block).run();
    if (warp_id() > kConsumers + 1 && plan.guessed_stages > 0) {
      Foresight(step, plan, block, shared_address(rows_of(dynamic))).run();
    }
  } else {
    take_registers<kConsumerRegisters>();
    Walk<kZ>(step, plan, block, dynamic).run();
  }
}

// ---- the host's side

template <int kZ>
void launch(const PersistentStep& step, cudaStream_t stream) {
  const auto kernel = persistent_kernel<kZ>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDynamicBytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_multiprocessors()));
  config.blockDim = dim3(kStepThreads);
  config.dynamicSmemBytes = kDynamicBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = device_chains() ? 2 : 1;
  PackedBoxes boxes{};
  if (step.sides.mask != 0) {
    boxes =
        packed_boxes(step.weights, step.weight_bytes, step.weights, step.weight_bytes, step.sides);
  }
  cudaLaunchKernelEx(&config, kernel, step, Plan(step, num_multiprocessors()), boxes);
}

const char* attention_refusal(const PersistentStep& step) noexcept {
  if (step.head_dim != 64 && step.head_dim != 128) return "needs heads of 64 or 128 values";
  if (step.kv_heads < 1 || step.heads % step.kv_heads != 0 ||
      step.heads / step.kv_heads > kMaxShared) {
    return "needs at most 8 query heads to a kv head";
  }
  if (step.kv_heads > kMaxKvHeads || step.kv_heads > num_multiprocessors()) {
    return "needs at most 64 kv heads";
  }
  if (step.block_tokens % kCacheTile != 0)
    return "needs cache blocks of a multiple of 16 positions";
  return nullptr;
}

// What the blocks share out: each has rows of the q, k, v product, as what it publishes says that it has read the stream.
const char* plan_refusal(const Plan& plan, int blocks) noexcept {
  const int most = kMaxBlockStages * blocks;
  if (plan.qkv.stages < blocks) return "its q, k, v product is too small for the blocks";
  if (plan.qkv.stages > most || plan.output.stages > most) {
    return "its products are too large for the blocks";
  }
  return nullptr;
}

}  // namespace

const char* persistent_refusal(const PersistentStep& step) noexcept {
  const int blocks = num_multiprocessors();
  const int64_t heads = int64_t{step.heads} * step.head_dim;
  const int64_t qkv = heads + int64_t{2} * step.kv_heads * step.head_dim;
  if (!device_chains()) return "needs Hopper, and launches that may be chained";
  if (blocks > kMostAdders) return "needs a device of at most 255 multiprocessors";
  if (const char* why = attention_refusal(step)) return why;
  if (step.width > kMaxWidth || step.width < 256 || heads < 256 ||
      !DenseCut::can(qkv, step.width) || !DenseCut::can(step.width, heads)) {
    return "needs products of 256 to 4096 inputs";
  }
  if (step.experts.rule.experts > kMaxGateExperts || step.experts.rule.top_k > kMaxPicks) {
    return "needs at most 256 experts and 16 picks";
  }
  if (!is_plain(step.experts.rule)) {
    return "needs softmax or sigmoid scores, without groups and powers";
  }
  if (const char* why = kMoeFfnSm90aSmall.refusal(step.experts)) return why;
  return plan_refusal(Plan(step, blocks), blocks);
}

bool persistent_guesses(const PersistentStep& step) noexcept {
  return Plan(step, num_multiprocessors()).guessed_stages > 0;
}

int64_t persistent_workspace(const PersistentStep& step) noexcept {
  return Workspace(step, num_multiprocessors()).end;
}

void run_persistent(const PersistentStep& step, StreamHandle stream) noexcept {
  if (step.head_dim == 64) return launch<64>(step, stream);
  launch<128>(step, stream);
}

}  // namespace switchyard::cuda
