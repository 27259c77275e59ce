// SPDX-License-Identifier: Apache-2.0
// The consumers' way through the layers of the persistent step (step_persistent_sm90a.cu).
#pragma once
#include "kernels/cuda/persistent_attention.cuh"
#include "kernels/cuda/persistent_dense.cuh"
#include "kernels/cuda/persistent_experts.cuh"
#include "kernels/cuda/persistent_picks.cuh"

namespace switchyard::cuda::persistent {

template <int kZ>
class Walk : Picking {
 public:
  __device__ Walk(const PersistentStep& step, const Plan& plan, Block& block, char* dynamic)
      : Picking(step, plan, block, rows_of(dynamic)),
        partials_(*reinterpret_cast<Partials*>(dynamic + kRingBytes)),
        experts_{block.s, plan.shape, block.work, shared_address(dynamic), partials_} {}

  __device__ __forceinline__ void run() {
    Held<kZ> held;
    ask_for_span(0, held);
#pragma unroll 1
    for (int l = 0; l < step_.layers; ++l) {
      thread_ = fresh_thread();
      const PersistentLayer& layer = block_.layer[l & 1];
      multiply_qkv(layer, l);
      wait_for_foresight(l);
      if (block_.span.exists) attention(layer, l).run(l, held);
      multiply_output(layer, l);
      route(layer, l);
      up(l);
      ask_for_span(l + 1, held);
      down(layer, l);
    }
    let_next_begin();
    finish();
  }

 private:
  // One thread, before the consumers meet and write over the rows of the q, k, v product.
  __device__ __forceinline__ void wait_for_foresight(int l) const {
    if (plan_.guessed_stages > 0 && thread_ == kTeller) {
      barrier_wait(shared_address(&block_.rows_read), l & 1);
    }
  }
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

  __device__ __forceinline__ Attention<kZ> attention(const PersistentLayer& layer, int l) const {
    return Attention<kZ>(step_, plan_, layer, block_, rows_, partials_, tag(l));
  }
  // Keys and values of earlier steps, for the attention of layer l: while this block waits for hidden rows. They are more than L1 has
  // room for, and what comes behind them has to wait.
  __device__ __forceinline__ void ask_for_span(int l, Held<kZ>& held) const {
#pragma unroll
    for (uint4& part : held) part = make_uint4(0, 0, 0, 0);  // else the last layer's would live on
    if (l == step_.layers) return;
    barrier_wait(shared_address(&block_.described), l & 1);
    if (block_.span.exists) attention(block_.layer[l & 1], l).load(block_.span.begin, held);
  }
  __device__ __forceinline__ void multiply_qkv(const PersistentLayer& layer, int l) {
    Row x, w;
    thread_ = fresh_thread();
    load_weights(layer.attention_norm, w);
    load_x(l > 0 ? array<float>(plan_.at.middle) : step_.x, x);
    if (l > 0) {
      wait_for_hint(events().parts_here, l * gridDim.x);
      add_parts(x, tag(l - 1));
    }
    share(squares(x), 0);
    keep_own(x);
    weigh(w, x);
    consumers_meet();
    const float scale = scale_from(0);
    if (thread_ == 0) block_.attention_scale = scale;
    store_rows(x, scale);
    consumers_meet();
    if (plan_.guessed_stages > 0 && thread_ == 0)
      barrier_arrive(shared_address(&block_.rows_there));
    renew();
    consume_dense(experts_, plan_.qkv, block_.qkv_place[warp()], block_.qkv_stages, rows_, block_);
    consumers_meet();
    leave_qkv(layer, l);
  }

  __device__ __forceinline__ void leave_qkv(const PersistentLayer& layer, int l) {
    const int local = thread_ = fresh_thread();
    const int q_rows = step_.heads * step_.head_dim;
    float q_square = 0, k_square = 0;
    if (local < block_.qkv_stages << plan_.qkv.row_bits) {
      const int row = plan_.qkv.row(local);
      const float bias = layer.qkv_bias != nullptr ? layer.qkv_bias[row] : 0.0f;
      const float value = dense_sum(plan_.qkv, block_, local) + bias;
      store_number(array<uint64_t>(plan_.at.qkv) + row, value, tag(l));
      if (row < q_rows) q_square = value * value;
      if (row >= q_rows && row < q_rows + step_.kv_heads * step_.head_dim) {
        k_square = value * value;
      }
    }
    if (step_.qk_norm != QkNormKind::full_width) return;
    share(q_square, 0);
    share(k_square, 1);
    consumers_meet();
    if (thread_ < 2) {
      uint64_t* const to = array<uint64_t>(plan_.at.squares) + thread_ * gridDim.x + blockIdx.x;
      store_number(to, shared_sum(thread_), tag(l));
    }
  }

  __device__ __forceinline__ void multiply_output(const PersistentLayer& layer, int l) {
    const int thread = thread_ = fresh_thread();
    const int rows = block_.output_stages << plan_.output.row_bits;
    const GateShare share(plan_, layer.gate, rows, thread);
    float bias = 0, norm = 0;
    if (thread < rows) {
      const int row = plan_.output.row(thread);
      norm = __ldg(layer.ffn_norm + row);
      if (layer.output_bias != nullptr) bias = layer.output_bias[row];
    }
    wait_for_hint(events().mixed_here, (l + 1) * step_.kv_heads);
    if (thread < step_.heads * step_.head_dim / 8) {
      Tagged<4> pairs;
      pairs.wait(array<uint64_t>(plan_.at.mixed) + thread * 4, tag(l));
      reinterpret_cast<uint4*>(rows_)[thread] =
          make_uint4(pairs.value[0], pairs.value[1], pairs.value[2], pairs.value[3]);
    }
    consumers_meet();
    renew();
    consume_dense(experts_, plan_.output, block_.output_place[warp()], block_.output_stages, rows_,
                  block_);
    consumers_meet();
    if (thread < rows) {
      const float sum = dense_sum(plan_.output, block_, thread);
      const float middle = step_.residual_scale * sum + bias + block_.own[thread];
      array<float>(plan_.at.middle)[plan_.output.row(thread)] = middle;
      block_.weighted[thread] = middle * norm * block_.attention_scale;
    }
    consumers_meet();
    shares()[thread] = share.part(plan_, block_.weighted);
    consumers_meet();
    if (thread < plan_.shape.rule.experts) {
      add_to_tally(tallies(l) + tally_at(thread), sum_gate_shares(plan_, shares(), thread));
    }
    if (thread == kTeller) arrive_at(events().middle);  // its fence takes a while
  }

  // Every block makes the same picks; pick k is row k of the experts' hidden rows. Then the norm before the experts.
  __device__ __forceinline__ void route(const PersistentLayer& layer, int l) {
    Row x, w;
    thread_ = fresh_thread();
    load_weights(layer.ffn_norm, w);
    choose(l);
    load_x(array<float>(plan_.at.middle), x);
    share(squares(x), 1);
    weigh(w, x);
    consumers_meet();
    const float scale = scale_from(1);
    if (thread_ == 0) block_.gate_scale = scale / block_.attention_scale;
    store_rows(x, scale);
    // All blocks have made their picks of the layers before, so their tallies are free.
    const int expert = static_cast<int>(blockIdx.x) + thread_ * static_cast<int>(gridDim.x);
    if (expert < plan_.shape.rule.experts) tallies(l + 2)[tally_at(expert)] = 0;
    consumers_meet();
  }

  __device__ float* shares() const { return reinterpret_cast<float*>(&partials_); }

  __device__ __forceinline__ void up(int l) {
    const bool tagged = plan_.small_pieces;
    renew();
    multiply_up(experts_, block_, plan_.guessed_stages, reinterpret_cast<const bf16*>(rows_),
                shares(), hidden(), tagged, tag(l));
    consumers_meet();
    if (thread_ == 0) {
      if (tagged) {
        hint_at(events().hidden_here);
      } else {
        arrive_at(events().hidden);
      }
    }
  }

  __device__ __forceinline__ void down(const PersistentLayer& layer, int l) {
    const Work& work = block_.work;
    const bool tagged = plan_.small_pieces;
    thread_ = fresh_thread();
    if (warp() == 1) weigh_experts(layer);
    if (tagged) {
      wait_for_hint(events().hidden_here, (l + 1) * gridDim.x);
    } else {
      wait_until(events().hidden, (l + 1) * gridDim.x);
    }
#pragma unroll 1
    for (int from = work.down_begin; from < work.down_end;) {
      const Piece piece(plan_.shape, work, from);
      const auto* inputs = reinterpret_cast<const bf16*>(rows_);
      int64_t stride = piece.blocks * MoePack::kAtomInputs;
      if (tagged) {
        bring_inputs(plan_.shape, piece, static_cast<uint64_t*>(hidden()), rows_, tag(l), thread_);
        consumers_meet();
      } else {
        inputs = static_cast<const bf16*>(hidden()) + piece.begin * MoePack::kAtomInputs;
        stride = int64_t{plan_.shape.down_blocks} * MoePack::kAtomInputs;
      }
      renew();
      add_picks(experts_, piece, inputs, stride, shares() + warp() * kOutputs);
      from += piece.blocks;
      consumers_meet();
      if (warp() == 0) leave_part(piece, l);
      if (!tagged) consumers_meet();  // the shares are free again
    }
    if (thread_ == 0) hint_at(events().parts_here);
  }
  __device__ __forceinline__ void leave_part(const Piece& piece, int l) const {
    const int part = block_.first_part + piece.row_block;
    const float sum = sum_shares(shares(), lane());
    const float next = __shfl_down_sync(kAllLanes, sum, 1);
    if (lane() % 2 != 0) return;
    store_two(array<uint64_t>(plan_.at.parts) + (part * kOutputs + lane()) / 2, sum, next, tag(l));
  }

  __device__ __forceinline__ void finish() {
    if (blockIdx.x == 0) {
      Row x;
      thread_ = fresh_thread();
      load_x(array<float>(plan_.at.middle), x);
      wait_for_hint(events().parts_here, step_.layers * gridDim.x);
      add_parts(x, tag(step_.layers - 1));
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
  Experts experts_;
};

}  // namespace switchyard::cuda::persistent
