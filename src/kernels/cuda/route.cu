// SPDX-License-Identifier: Apache-2.0
// Routing: picks of every token, then the rows of every expert, in one launch to 32 tokens and in two, chained, beyond.
//
//   score   one warp a token makes the picks (route_token.cuh); a block counts its tokens' picks per expert
//   place   a block adds the counts of the blocks before it, scans them over experts, and gives each pick its row:
//           the rank of a token among the 32 of its round is a population count in the expert's bit mask
// Rows are sorted by expert, then token: the order depends on the picks alone. No atomics on global memory but for the
// count of unusable tokens.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/route_token.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kMaxExperts = MoeRoute::kMaxExperts;
constexpr int kPlaceWarps = 32;
constexpr int kBatch = 4;            // rounds that are placed together
constexpr int kOneBlockTokens = 32;  // a warp each, or two with more than 256 experts

/// How many tokens a block works on at once, one a warp. Experts beyond 256 need twice the registers.
template <int kPerLane>
inline constexpr int kWarpsFor = kPerLane <= 8 ? 32 : 16;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }

// Tokens that get picks: all of a call, or the live ones.
__device__ __forceinline__ int64_t live_tokens(const MoeRoute::Args& args) {
  if (args.live_tokens == nullptr) return args.tokens;
  const int64_t live = *args.live_tokens;
  return live < args.tokens ? live : args.tokens;
}

// The picks of token t by one warp, stored, unless they are given. Lane k returns the expert of pick k, or -1.
template <int kPerLane>
__device__ int score_token(const RouteRule& rule, const MoeRoute::Args& args, int64_t t,
                           int64_t live) {
  const int lane = lane_id();
  Pick pick;
  float weight = 0;
  if (t < live && args.logits == nullptr) return given_pick(rule, args.routing, t).expert;
  if (t < live) {
    const float* logits = args.logits + t * rule.experts;
    pick = choose_experts<kPerLane>(rule, logits, args.bias, lane);
    weight = pick_weight(rule, logits, pick, lane);
    if (lane == 0 && !pick.usable) atomicAdd(args.routing.unusable, 1);
  }
  if (lane >= rule.top_k) return -1;
  args.routing.expert[t * rule.top_k + lane] = pick.expert;
  args.routing.weight[t * rule.top_k + lane] = weight;
  return pick.expert;
}

struct PlaceShared {
  int count[kMaxExperts];   // picks of this call, then the expert's first row for this block
  int before[kMaxExperts];  // picks of the blocks before this one
  uint32_t tokens[kBatch][kMaxExperts];  // of a round; bit w: the token of warp w picked the expert
  int warp_count[kMaxExperts / 32], warp_hits[kMaxExperts / 32];
};

// From count and before to the first row of each expert; block 0 stores offsets and the list of hit experts.
__device__ void scan_experts(PlaceShared& s, const RouteRule& rule, const DeviceRouting& routing) {
  const int e = static_cast<int>(threadIdx.x), lane = lane_id(), warp = warp_id();
  const int count = e < rule.experts ? s.count[e] : 0;
  int through = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int lower = __shfl_up_sync(kAllLanes, through, step);
    if (lane >= step) through += lower;
  }
  const uint32_t hits = __ballot_sync(kAllLanes, count > 0);
  if (e < kMaxExperts && lane == 31) {
    s.warp_count[warp] = through;
    s.warp_hits[warp] = __popc(hits);
  }
  __syncthreads();
  if (e < kMaxExperts) {
    int rows = 0, hit = 0;
    for (int w = 0; w < warp; ++w) {
      rows += s.warp_count[w];
      hit += s.warp_hits[w];
    }
    const int first = rows + through - count;
    if (e < rule.experts) s.count[e] = first + s.before[e];
    if (blockIdx.x == 0 && e < rule.experts) {
      routing.slot_offset[e] = first;
      if (count > 0) routing.hit[hit + __popc(hits & ((1u << lane) - 1))] = e;
      if (e == rule.experts - 1) {
        routing.slot_offset[rule.experts] = first + count;
        *routing.num_hit = hit + __popc(hits);
      }
    }
  }
  __syncthreads();
}

// Rows of the picks of kBatch rounds: in round r the token of warp w is first + r * kWarps + w, and expert[r] the pick of
// this lane, -1 where there is none.
template <int kWarps>
__device__ void place_rounds(PlaceShared& s, const RouteRule& rule, const DeviceRouting& routing,
                             int64_t first, int64_t tokens, const int (&expert)[kBatch]) {
  constexpr int kThreads = kWarps * 32;
  const int lane = lane_id(), warp = warp_id();
  for (int e = static_cast<int>(threadIdx.x); e < rule.experts; e += kThreads) {
#pragma unroll
    for (int r = 0; r < kBatch; ++r) s.tokens[r][e] = 0;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kBatch; ++r) {
    if (expert[r] >= 0) atomicOr(&s.tokens[r][expert[r]], 1u << warp);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kBatch; ++r) {
    const int64_t t = first + r * kWarps + warp;
    if (t >= tokens || lane >= rule.top_k) break;
    int row = -1;
    if (expert[r] >= 0) {
      row = s.count[expert[r]] + __popc(s.tokens[r][expert[r]] & ((1u << warp) - 1));
#pragma unroll
      for (int before = 0; before < r; ++before) row += __popc(s.tokens[before][expert[r]]);
      routing.row_token[row] = static_cast<int32_t>(t);
    }
    routing.pick_row[t * rule.top_k + lane] = row;
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < rule.experts; e += kThreads) {
#pragma unroll
    for (int r = 0; r < kBatch; ++r) s.count[e] += __popc(s.tokens[r][e]);
  }
}

template <int kPerLane, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 1)
    route_one_block(RouteRule rule, MoeRoute::Args args) {
  let_next_begin();
  wait_for_previous();
  constexpr int kThreads = kWarps * 32;
  __shared__ PlaceShared s;
  const int64_t live = live_tokens(args);
  for (int e = static_cast<int>(threadIdx.x); e < rule.experts; e += kThreads) {
    s.count[e] = s.before[e] = 0;
  }
  __syncthreads();
  int expert[kBatch] = {-1, -1, -1, -1};
#pragma unroll
  for (int round = 0; round < 2; ++round) {
    const int64_t t = round * kWarps + warp_id();
    if (t >= args.tokens) continue;
    expert[round] = score_token<kPerLane>(rule, args, t, live);
    if (expert[round] >= 0) atomicAdd(&s.count[expert[round]], 1);
  }
  __syncthreads();
  scan_experts(s, rule, args.routing);
  place_rounds<kWarps>(s, rule, args.routing, 0, args.tokens, expert);
}

// Block b owns tokens [b * rounds * kWarps, (b + 1) * rounds * kWarps). counts [blocks, E].
template <int kPerLane, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 1)
    score_blocks(RouteRule rule, MoeRoute::Args args, int rounds, int* counts) {
  let_next_begin();
  wait_for_previous();
  constexpr int kThreads = kWarps * 32;
  __shared__ int count[kMaxExperts];
  const int64_t live = live_tokens(args);
  for (int e = static_cast<int>(threadIdx.x); e < rule.experts; e += kThreads) count[e] = 0;
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    const int64_t t = (static_cast<int64_t>(blockIdx.x) * rounds + round) * kWarps + warp_id();
    if (t >= args.tokens) break;
    const int expert = score_token<kPerLane>(rule, args, t, live);
    if (expert >= 0) atomicAdd(&count[expert], 1);
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < rule.experts; e += kThreads) {
    counts[static_cast<int64_t>(blockIdx.x) * rule.experts + e] = count[e];
  }
}

// Adds up the counts of all score blocks, and of the `num_before` that stand before this block's tokens. Integers: the
// order does not matter.
__device__ void sum_counts(PlaceShared& s, int experts, const int* counts, int num_counted,
                           int num_before) {
  const int thread = static_cast<int>(threadIdx.x);
  const int shares = kPlaceWarps * 32 / experts;
  if (thread < experts) s.count[thread] = s.before[thread] = 0;
  __syncthreads();
  if (thread < shares * experts) {
    const int e = thread % experts;
    int all = 0, before = 0;
#pragma unroll 16
    for (int b = thread / experts; b < num_counted; b += shares) {
      const int count = counts[b * experts + e];
      all += count;
      if (b < num_before) before += count;
    }
    atomicAdd(&s.count[e], all);
    atomicAdd(&s.before[e], before);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kPlaceWarps * 32, 1)
    place_blocks(RouteRule rule, MoeRoute::Args args, int rounds, const int* counts,
                 int num_counted, int counted_a_block) {
  let_next_begin();
  wait_for_previous();
  __shared__ PlaceShared s;
  const int block = static_cast<int>(blockIdx.x);
  sum_counts(s, rule.experts, counts, num_counted, block * counted_a_block);
  scan_experts(s, rule, args.routing);
  for (int round = 0; round < rounds; round += kBatch) {
    const int64_t first = (static_cast<int64_t>(block) * rounds + round) * kPlaceWarps;
    int expert[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      const int64_t t = first + r * kPlaceWarps + warp_id();
      const bool pick = round + r < rounds && t < args.tokens && lane_id() < rule.top_k;
      expert[r] = pick ? args.routing.expert[t * rule.top_k + lane_id()] : -1;
    }
    const int64_t end = first + static_cast<int64_t>(min(kBatch, rounds - round)) * kPlaceWarps;
    place_rounds<kPlaceWarps>(s, rule, args.routing, first, min(end, args.tokens), expert);
  }
}

int64_t parts_of(int64_t count, int64_t size) noexcept { return (count + size - 1) / size; }

// Score blocks of kWarps warps, `rounds` tokens a warp; place blocks of as many tokens, or of one round of theirs.
template <int kPerLane, int kWarps>
void launch_two(const RouteRule& rule, const MoeRoute::Args& args, int rounds,
                cudaStream_t stream) noexcept {
  auto* const counts = static_cast<int*>(args.workspace);
  const int scored = rounds * kWarps;
  const int place_rounds = scored < kPlaceWarps ? 1 : scored / kPlaceWarps;
  const int placed = place_rounds * kPlaceWarps;
  const auto score_grid = static_cast<unsigned>(parts_of(args.tokens, scored));
  const auto place_grid = static_cast<unsigned>(parts_of(args.tokens, placed));
  launch_chained(score_blocks<kPerLane, kWarps>, dim3(score_grid), kWarps * 32, 0, stream, rule,
                 args, rounds, counts);
  launch_chained(place_blocks, dim3(place_grid), kPlaceWarps * 32, 0, stream, rule, args,
                 place_rounds, counts, static_cast<int>(score_grid), placed / scored);
}

template <int kPerLane>
void launch(const RouteRule& rule, const MoeRoute::Args& args, cudaStream_t stream) noexcept {
  constexpr int kWarps = kWarpsFor<kPerLane>, kFewWarps = 8;
  if (args.tokens <= kOneBlockTokens) {
    launch_chained(route_one_block<kPerLane, kWarps>, dim3(1), kWarps * 32, 0, stream, rule, args);
    return;
  }
  // Few tokens a block while there are multiprocessors for them all: a warp's picks wait for each other.
  if (args.tokens <= kFewWarps * MoeRoute::kMaxBlocks) {
    return launch_two<kPerLane, kFewWarps>(rule, args, 1, stream);
  }
  constexpr int kStep = kPlaceWarps / kWarps;  // rounds that make whole place rounds
  const int64_t rounds = parts_of(args.tokens, int64_t{kWarps} * kStep * MoeRoute::kMaxBlocks);
  launch_two<kPerLane, kWarps>(rule, args, static_cast<int>(rounds * kStep), stream);
}

}  // namespace
}  // namespace switchyard::cuda

namespace switchyard {

void MoeRoute::run(const Problem& problem, const Args& args, void* stream) noexcept {
  const RouteRule& rule = problem.rule;
  auto* const on = static_cast<cudaStream_t>(stream);
  if (rule.experts <= 64) return cuda::launch<2>(rule, args, on);
  if (rule.experts <= 128) return cuda::launch<4>(rule, args, on);
  if (rule.experts <= 256) return cuda::launch<8>(rule, args, on);
  cuda::launch<16>(rule, args, on);
}

}  // namespace switchyard
