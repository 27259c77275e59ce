// SPDX-License-Identifier: Apache-2.0
// The consumers' way through the layers of the persistent step (step_persistent_sm90a.cu).
#pragma once
#include "kernels/cuda/persistent_attention.cuh"
#include "kernels/cuda/persistent_gate.cuh"
#include "kernels/cuda/persistent_rows.cuh"

namespace switchyard::cuda::persistent {

// The consumers' way through the layers.
template <int kZ>
class Walk : Rows {
 public:
  __device__ Walk(const PersistentStep& step, const Plan& plan, Block& block, char* dynamic)
      : Rows(step, plan, block, dynamic + kRingBytes + sizeof(Partials)),
        partials_(*reinterpret_cast<Partials*>(dynamic + kRingBytes)),
        results_(reinterpret_cast<float*>(rows_ + kRowBytes)),
        experts_{block.s, plan.shape, block.work, shared_address(dynamic), partials_} {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int l = 0; l < step_.layers; ++l) {
      renew();
      barrier_wait(shared_address(&block_.described), l & 1);
      const PersistentLayer& layer = block_.layer[l & 1];
      multiply_qkv(layer, l);
      if (block_.span.exists) {
        Attention<kZ>(step_, plan_, layer, block_, rows_, partials_).run(layer, l);
      }
      multiply_output(layer, l);
      gate(layer, l);
      route(layer, l);
      experts_.up_items(reinterpret_cast<const bf16*>(rows_), hidden());
      tell(events().hidden);
      down(l);
    }
    let_next_begin();
    finish();
  }

 private:
  // See fresh_thread().
  __device__ __forceinline__ void renew() {
    const int thread = fresh_thread();
    experts_.thread = thread_ = thread;
    experts_.lane = thread % 32;
    experts_.warp = thread / 32;
    experts_.group = experts_.warp / kGroupWarps;
    experts_.member = experts_.warp % kGroupWarps;
    experts_.g = experts_.lane / 4;
    experts_.q = experts_.lane % 4;
  }

  __device__ __forceinline__ void multiply_qkv(const PersistentLayer& layer, int l) {
    Row x, w;
    thread_ = fresh_thread();
    load_weights(layer.attention_norm, w);
    load_x(l > 0 ? array<float>(plan_.at.middle) : step_.x, x);
    if (l > 0) {
      wait_until(events().parts, l * gridDim.x);
      add_parts(x);
    }
    share(squares(x), 0);
    weigh(w, x);
    consumers_meet();
    store_rows(x, scale_from(0));
    consumers_meet();
    consume_dense(experts_, plan_.qkv, block_.qkv_stages, rows_, block_);
    consumers_meet();
    const int local = thread_ = fresh_thread();
    if (local < block_.qkv_stages << plan_.qkv.row_bits) {
      const int row = plan_.qkv.row(local);
      const float bias = layer.qkv_bias != nullptr ? layer.qkv_bias[row] : 0.0f;
      array<float>(plan_.at.qkv)[row] = dense_sum(plan_.qkv, block_, local) + bias;
    }
    tell(events().qkv);
  }

  __device__ __forceinline__ void multiply_output(const PersistentLayer& layer, int l) {
    const int chunks = step_.heads * step_.head_dim / 8, thread = thread_ = fresh_thread();
    const int rows = block_.output_stages << plan_.output.row_bits;
    float bias = 0, before = 0;
    if (thread < rows) {
      const int row = plan_.output.row(thread);
      before = x_at(row, l);
      if (layer.output_bias != nullptr) bias = layer.output_bias[row];
    }
    wait_until(events().mixed, (l + 1) * step_.kv_heads);
    if (thread < chunks) {
      reinterpret_cast<uint4*>(rows_)[thread] = __ldcg(array<uint4>(plan_.at.mixed) + thread);
    }
    consumers_meet();
    consume_dense(experts_, plan_.output, block_.output_stages, rows_, block_);
    consumers_meet();
    if (thread < rows) {
      const float sum = dense_sum(plan_.output, block_, thread);
      array<float>(plan_.at.middle)[plan_.output.row(thread)] =
          step_.residual_scale * sum + bias + before;
    }
    tell(events().middle);
  }

  // The norm before the experts, and the logits of this block's experts.
  __device__ __forceinline__ void gate(const PersistentLayer& layer, int l) {
    Row x, w, gate;
    thread_ = fresh_thread();
    const int experts = plan_.shape.rule.experts, blocks = static_cast<int>(gridDim.x);
    int expert = static_cast<int>(blockIdx.x);
    load_weights(layer.ffn_norm, w);
    load_weights(layer.gate + min(expert, experts - 1) * step_.width, gate);
    wait_until(events().middle, (l + 1) * gridDim.x);
    load_x(array<float>(plan_.at.middle), x);
    share(squares(x), 1);
    weigh(w, x);
    share(dot(x, gate), 2);
    consumers_meet();
    const float scale = scale_from(1);
    if (thread_ == 0 && expert < experts) leave_logit(expert, shared_sum(2) * scale, l);
    store_rows(x, scale);
#pragma unroll 1
    for (expert += blocks; expert < experts; expert += blocks) {
      load_weights(layer.gate + expert * step_.width, gate);
      consumers_meet();  // the slot is free again
      share(dot(x, gate), 2);
      consumers_meet();
      if (thread_ == 0) leave_logit(expert, shared_sum(2) * scale, l);
    }
  }

  __device__ uint32_t tag(int l) const { return block_.epoch + l + 1; }
  __device__ __forceinline__ void leave_logit(int expert, float logit, int l) const {
    store_tagged(array<uint64_t>(plan_.at.logits) + expert, logit, tag(l));
  }

  // Every block makes the same picks; pick k is row k of the experts' hidden rows.
  __device__ __forceinline__ void route(const PersistentLayer& layer, int l) {
    if (warp() == 0) {
      const int lane = thread_ % 32, top_k = plan_.shape.rule.top_k;
      const RouteRule& rule = plan_.shape.rule;
      load_tagged<kMaxGateExperts / 32>(array<uint64_t>(plan_.at.logits), rule.experts, tag(l),
                                        lane, block_.logits);
      const Pick pick = plain_picks(rule, block_.logits, lane);
      if (lane < top_k) {
        block_.s.hit_expert[lane] = pick.expert;
        block_.s.pick_expert[lane] = pick.expert;
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&block_.routed));
      const float weight = pick_weight(plain_rule(rule), block_.logits, pick, lane);
      if (lane < top_k) block_.s.pick_weight[lane] = weight;
      if (blockIdx.x == gridDim.x - 1 && lane < top_k) {
        layer.expert[lane] = pick.expert;
        layer.weight[lane] = weight;
      }
    }
    consumers_meet();
  }

  __device__ __forceinline__ void down(int l) {
    const Work& work = block_.work;
    int from = work.down_begin;
    Piece piece(plan_.shape, work, from);
    wait_until(events().hidden, (l + 1) * gridDim.x);
#pragma unroll 1
    while (from < work.down_end) {
      experts_.down_hits(piece, hidden(), results_);
      consumers_meet();
      if (warp() == 0) {
        const int part = static_cast<int>(blockIdx.x) + piece.row_block;
        array<float>(plan_.at.parts)[part * kOutputs + lane()] = experts_.picked(piece, results_);
      }
      from += piece.blocks;
      if (from >= work.down_end) break;
      piece = Piece(plan_.shape, work, from);
      consumers_meet();  // the results are free again
    }
    tell(events().parts);
  }

  __device__ __forceinline__ void finish() {
    if (blockIdx.x == 0) {
      Row x;
      thread_ = fresh_thread();
      load_x(array<float>(plan_.at.middle), x);
      wait_until(events().parts, step_.layers * gridDim.x);
      add_parts(x);
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        if (quad(i) < quads()) reinterpret_cast<float4*>(step_.x)[quad(i)] = x[i];
      }
    }
    if (threadIdx.x == 0) reset_events();
  }

  // The last block to come leaves all counts fit for the next step.
  __device__ void reset_events() {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(&events().done.count)
                 : "memory");
    if (before != gridDim.x - 1) return;
    *array<uint32_t>(plan_.at.epoch) = block_.epoch + step_.layers;
    auto* all = reinterpret_cast<Event*>(&events());
    for (int i = 0; i < static_cast<int>(sizeof(Events) / sizeof(Event)); ++i) all[i].count = 0;
  }

  Partials& partials_;
  float* results_;
  Experts experts_;
};

}  // namespace switchyard::cuda::persistent
