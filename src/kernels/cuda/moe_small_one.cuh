// SPDX-License-Identifier: Apache-2.0
// What the single-launch layer (moe_small_sm90a.cu) does otherwise for one token that it routes itself: hit h is pick h, so the shape of
// the work is known before the picks are, and the producer asks for weights as soon as it has the one pick that they need.
#pragma once
#include "kernels/cuda/moe_small_producer.cuh"

namespace switchyard::cuda::small_layer {

// Hits and rows are picks, so there are few.
struct SharedOne : SharedOf<kMostPicks, kMostPicks> {
  Work work;
  Pick common;     // what is known of all picks
  uint64_t ready;  // a barrier of one arrival: the picks are there
};

// All threads, before anything is known.
__device__ inline void lay_out_one(SharedOne& s, const Shape& shape) {
  const int thread = static_cast<int>(threadIdx.x), top_k = shape.rule.top_k;
  if (thread == 0) {
    s.work = Work(shape, top_k);
    s.num_hit = top_k;
    barrier_init(shared_address(&s.ready), 1);
  }
  if (thread <= top_k) s.hit_row[thread] = thread;
  if (thread < top_k) s.row_token[thread] = 0;
}

// Picks that the producer warp makes when it is first asked for them.
template <int kPerLane>
class LazyPicks {
 public:
  __device__ LazyPicks(SharedOne& s, const RouteRule& rule, const float* logits, const float* bias)
      : s_(s), top_k_(rule.top_k), chooser_(rule, logits, bias, lane_id()) {}

  __device__ int operator()(int pick) {
    make(pick + 1);
    return __shfl_sync(kAllLanes, own_, pick);
  }
  __device__ void make(int count) {
#pragma unroll 1
    for (; made_ < count; ++made_) {
      const int expert = chooser_.next(lane_id());
      if (lane_id() == made_) own_ = expert;
    }
  }
  /// Leaves all picks for the consumers, once. A token of a graph's padding is not live and has none.
  __device__ void settle(bool live = true) {
    if (settled_) return;
    settled_ = true;
    make(top_k_);
    const int lane = lane_id();
    if (lane < top_k_) {
      s_.hit_expert[lane] = s_.pick_expert[lane] = live ? own_ : -1;
      s_.pick_row[lane] = live ? lane : -1;
    }
    if (lane == 0) s_.common = chooser_.common();
    if (lane == 0 && !live) s_.num_hit = s_.work.items = 0;
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&s_.ready));
  }

 private:
  SharedOne& s_;
  int top_k_, made_ = 0, own_ = 0;
  bool settled_ = false;
  Chooser<kPerLane> chooser_;
};

// A warp of consumers, once the picks are there.
__device__ inline void weigh_picks(SharedOne& s, const Shape& shape, const MoeFfn::Args& args) {
  const int lane = lane_id(), top_k = shape.rule.top_k;
  Pick pick = s.common;
  if (lane < top_k) pick.expert = s.pick_expert[lane];
  const bool live = s.num_hit > 0;
  const float weight = live ? pick_weight(flat_rule(shape.rule), args.logits, pick, lane) : 0;
  if (lane < top_k) s.pick_weight[lane] = weight;
  if (live && !pick.usable && blockIdx.x == 0 && lane == 0) atomicAdd(args.routing.unusable, 1);
}

// What the route kernel would have written: there rows go by rising expert.
__device__ inline void store_routing(const SharedOne& s, const Shape& shape,
                                     const DeviceRouting& to) {
  const int thread = static_cast<int>(threadIdx.x), hits = s.num_hit;
  const auto below = [&](int expert) {
    int count = 0;
    for (int k = 0; k < hits; ++k) count += s.pick_expert[k] < expert ? 1 : 0;
    return count;
  };
  if (thread < shape.rule.top_k) {
    const int expert = s.pick_expert[thread], row = hits > 0 ? below(expert) : -1;
    to.expert[thread] = expert;
    to.weight[thread] = s.pick_weight[thread];
    to.pick_row[thread] = row;
    if (row >= 0) to.hit[row] = expert;
    if (row >= 0) to.row_token[row] = 0;
  }
  for (int e = thread; e <= shape.rule.experts; e += kConsumerThreads) {
    to.slot_offset[e] = below(e);
  }
  if (thread == 0) *to.num_hit = hits;
}

}  // namespace switchyard::cuda::small_layer
