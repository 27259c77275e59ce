// SPDX-License-Identifier: Apache-2.0
// The picks in the persistent step: every block makes the same, and settles them in the places of their guesses.
#pragma once
#include "kernels/cuda/persistent_foresight.cuh"
#include "kernels/cuda/persistent_gate.cuh"

namespace switchyard::cuda::persistent {

class Picking : protected Rows {
 protected:
  using Rows::Rows;

  // Who tells of the rows, and waits for all of them: a warp that has no logits and no picks to bring, except of 256 experts.
  static constexpr int kTeller = kConsumerThreads - 32;

  // Of what layer l leaves.
  __device__ uint32_t tag(int l) const { return block_.epoch + l + 1; }

  __device__ uint64_t* tallies(int l) const {
    return array<uint64_t>(plan_.at.logits + (block_.epoch + l) % kTallyLayers * kTallyBytes);
  }

  __device__ __forceinline__ void choose(int l) {
    const RouteRule& rule = plan_.shape.rule;
    bool usable = true;
    if (plan_.guessed_stages > 0 && warp() == 0)
      barrier_wait(shared_address(&block_.guessed), l & 1);
    if (thread_ < (rule.experts + 31) / 32 * 32) {
      usable = bring_logits(tallies(l), rule, thread_, block_.logits, block_.candidates);
    }
    usable = consumers_agree(usable);
    if (thread_ == 0) block_.usable = usable;
    if (warp() < Candidates::warps(rule)) {
      leave_pick(pick_of(rule, block_.candidates, usable, thread_));
      __syncwarp();
      if (lane() == 0) barrier_arrive(shared_address(&block_.routed));
    }
    if (thread_ == kTeller) poll(events().middle, (l + 1) * gridDim.x);
    consumers_meet();
  }
  __device__ __forceinline__ void leave_pick(Pick pick) {
    const bool exists = pick.rank < plan_.shape.rule.top_k;
    int place = pick.rank;
    if (plan_.guessed_stages > 0) {
      place = settle(exists, pick.expert, plan_.shape.rule.top_k, lane(), block_);
    }
    if (!exists) return;
    block_.s.hit_expert[place] = pick.expert;
    block_.place_of[pick.rank] = static_cast<uint8_t>(place);
  }

  // While the last hidden rows are made elsewhere.
  __device__ __forceinline__ void weigh_experts(const PersistentLayer& layer) {
    const int lane = thread_ % 32;
    weigh_picks(plan_.shape.rule, block_.logits, block_.gate_scale, block_.usable, lane,
                block_.s.hit_expert, block_.s.pick_weight);
    __syncwarp();
    if (blockIdx.x == gridDim.x - 1 && lane < plan_.shape.rule.top_k) {
      const int place = block_.place_of[lane];
      layer.expert[lane] = block_.s.hit_expert[place];
      layer.weight[lane] = block_.s.pick_weight[place];
      if (lane == 0 && plan_.guessed_stages > 0) count_guesses();
    }
  }
  // One thread of the grid.
  __device__ void count_guesses() const {
    const int wrong = __popc(block_.wrong_guesses);
    step_.guesses[0] += plan_.shape.rule.top_k - wrong;
    step_.guesses[1] += wrong;
  }
};

}  // namespace switchyard::cuda::persistent
