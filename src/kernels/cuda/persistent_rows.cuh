// SPDX-License-Identifier: Apache-2.0
// The residual stream in the persistent step: every block has all of it, a thread a few values. What the phases do with it: sums over
// the block, norms, and the bf16 row that a product reads.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda::persistent {

class Rows {
 protected:
  __device__ Rows(const PersistentStep& step, const Plan& plan, Block& block, char* rows)
      : step_(step), plan_(plan), block_(block), rows_(rows) {}

  __device__ char* memory() const { return static_cast<char*>(step_.workspace); }
  __device__ Events& events() const { return *block_.events; }
  template <class T>
  __device__ T* array(int64_t at) const {
    return reinterpret_cast<T*>(memory() + at);
  }
  __device__ void* hidden() const { return array<char>(plan_.at.hidden); }
  __device__ int quads() const { return static_cast<int>(step_.width / 4); }
  __device__ int lane() const { return thread_ % 32; }
  __device__ int warp() const { return thread_ / 32; }
  __device__ int quad(int i) const { return thread_ + i * kConsumerThreads; }

  // A row of the residual stream, of which each thread keeps its quads.
  using Row = float4[kQuads];

  __device__ __forceinline__ void load_x(const float* from, Row& x) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      x[i] = quad(i) < quads() ? __ldcg(reinterpret_cast<const float4*>(from) + quad(i))
                               : make_float4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void load_weights(const float* from, Row& w) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      w[i] = quad(i) < quads() ? __ldg(reinterpret_cast<const float4*>(from) + quad(i))
                               : make_float4(0, 0, 0, 0);
    }
  }

  // Adds up one value of each thread; slots are free again after the next meeting but one.
  __device__ __forceinline__ void share(float v, int slot) {
    v = warp_sum(v);
    if (lane() == 0) block_.reduce[slot][warp()] = v;
  }
  __device__ __forceinline__ float shared_sum(int slot) const {
    const auto* parts = reinterpret_cast<const float4*>(block_.reduce[slot]);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kConsumers / 4; ++i) {
      sum += (parts[i].x + parts[i].y) + (parts[i].z + parts[i].w);
    }
    return sum;
  }
  __device__ __forceinline__ float scale_from(int slot) const {
    return rsqrtf(shared_sum(slot) / static_cast<float>(step_.width) + step_.eps);
  }
  static __device__ __forceinline__ float squares(const Row& x) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) sum += squares_of(x[i]);
    return sum;
  }
  static __device__ __forceinline__ void weigh(const Row& w, Row& x) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      x[i] = make_float4(x[i].x * w[i].x, x[i].y * w[i].y, x[i].z * w[i].z, x[i].w * w[i].w);
    }
  }
  // What a product reads, in bf16.
  __device__ __forceinline__ void store_rows(const Row& x, float scale) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (quad(i) >= quads()) break;
      reinterpret_cast<uint2*>(rows_)[quad(i)] = make_uint2(
          pack_bf16(x[i].x * scale, x[i].y * scale), pack_bf16(x[i].z * scale, x[i].w * scale));
    }
  }

  // What the experts of a layer have left for quad `at` of part p.
  __device__ __forceinline__ const uint64_t* part(int p, int at) const {
    return array<uint64_t>(plan_.at.parts) + p * (kOutputs / 2) + at % (kOutputs / 4) * 2;
  }
  // Adds what the experts of the layer with this tag have left.
  __device__ __forceinline__ void add_parts(Row& x, uint32_t tag) const {
    const float scale = step_.residual_scale;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (quad(i) >= quads()) break;
      const PartRange range = block_.part[quad(i) / (kOutputs / 4)];
      float sum[4] = {};
#pragma unroll 1
      for (int p = range.first; p <= range.last; p += 2) {
        TaggedFour one, two;  // both on their way at once
        const bool both = p < range.last;
        bool there;
        do {
          there = one.read(part(p, quad(i)), tag);
          if (both) there &= two.read(part(p + 1, quad(i)), tag);
        } while (!there);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] += both ? one.number(j) + two.number(j) : one.number(j);
      }
      x[i] = make_float4(fmaf(scale, sum[0], x[i].x), fmaf(scale, sum[1], x[i].y),
                         fmaf(scale, sum[2], x[i].z), fmaf(scale, sum[3], x[i].w));
    }
  }
  // Keeps this block's rows of the stream, by who has them: what its part of the output product is added to.
  __device__ __forceinline__ void keep_own(const Row& x) const {
    const DenseCut& cut = plan_.output;
    const unsigned blocks = gridDim.x, mask = (1 << cut.row_bits) - 1;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (quad(i) >= quads()) break;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {  // of one stage
        const unsigned row = quad(i) * 4 + pair * 2, stage = row >> cut.row_bits;
        const unsigned turn = stage / blocks;
        if (stage - turn * blocks != blockIdx.x) continue;
        *reinterpret_cast<float2*>(&block_.own[turn << cut.row_bits | (row & mask)]) =
            pair == 0 ? make_float2(x[i].x, x[i].y) : make_float2(x[i].z, x[i].w);
      }
    }
  }

  const PersistentStep& step_;
  const Plan& plan_;
  Block& block_;
  char* rows_;
  int thread_ = 0;
};

}  // namespace switchyard::cuda::persistent
