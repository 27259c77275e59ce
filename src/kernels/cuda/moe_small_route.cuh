// SPDX-License-Identifier: Apache-2.0
// The routing that every block of the single-launch layer (moe_small_sm90a.cu) makes for itself: picks, rows and hit experts.
#pragma once
#include "kernels/cuda/moe_small.cuh"

namespace switchyard::cuda::small_layer {

// kFlat: is_flat(rule).
template <bool kFlat>
__device__ __forceinline__ Pick route_of(const RouteRule& rule, const float* logits,
                                         const float* bias) {
  const int lane = lane_id();
  if constexpr (kFlat) {
    if (rule.experts <= 128) return choose_experts<4>(flat_rule(rule), logits, bias, lane);
    return choose_experts<kMaxExperts / 32>(flat_rule(rule), logits, bias, lane);
  } else {
    return choose_experts<kMaxExperts / 32>(rule, logits, bias, lane);
  }
}

// The list of hit experts, every expert's first row, and what this block does, from the bit masks; one warp a run of 32 experts. Rows and hits
// are counted in one word.
template <class Shared>
__device__ void list_hits(Shared& s, const Shape& shape, Work& work) {
  const int lane = lane_id(), warp = warp_id(), experts = shape.rule.experts;
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
    work = Work(shape, s.num_hit);
  }
}

// The hit experts alone, and how many: all that the producer waits for. One warp.
template <class Shared>
__device__ int list_experts(const Shared& s, const Shape& shape, uint8_t* list) {
  const int lane = lane_id();
  int hits = 0;
#pragma unroll 1
  for (int first = 0; first < shape.rule.experts; first += 32) {
    const int expert = first + lane;
    const bool hit = expert < shape.rule.experts && s.tokens[expert] != 0;
    const uint32_t all = __ballot_sync(kAllLanes, hit);
    if (hit) list[hits + __popc(all & ((1u << lane) - 1))] = static_cast<uint8_t>(expert);
    hits += __popc(all);
  }
  __syncwarp();
  return hits;
}

// Lane k of warp t gives pick k of token t its row.
template <class Shared>
__device__ void place_pick(Shared& s, const Shape& shape, const Pick& pick, float weight) {
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
  s.pick_weight[at] = weight;
}

// What the route kernel would have written, by the consumers of one block.
template <class Shared>
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

}  // namespace switchyard::cuda::small_layer
