// SPDX-License-Identifier: Apache-2.0
// Dense products of one token in the persistent step. Weights stay as the checkpoint has them: a stage is whole rows.
//
// The mma has 8 columns and the token is one. So its columns take 8 runs of inputs in place of 8 tokens: row g of the weights'
// operand holds run g of a weight row, column g that of the token, and the sum is the diagonal. A warp reads 512 bytes of a row that
// follow each other, without bank conflicts; rows 8 to 15 of the operand are a second weight row.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

// This lane's term of the two diagonals: of the first in the warp's lower half, of the second in the upper, where it is added up.
__device__ __forceinline__ float diagonal_term(int lane, const float (&a)[4], const float (&b)[4]) {
  const int g = lane / 4, q = lane % 4;
  float low = g % 2 == 0 ? a[0] + b[0] : a[1] + b[1];
  float high = g % 2 == 0 ? a[2] + b[2] : a[3] + b[3];
  if (q != g / 2) low = high = 0;
  const bool upper = lane >= 16;
  return (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, 16);
}

/// All stages of this block into block.sums; `tokens` is the bf16 row in shared memory, `part` this warp's.
template <class Consumer>
__device__ __forceinline__ void consume_dense(Consumer& consumer, const DenseCut& cut,
                                              const DensePlace& part, int stages,
                                              const char* tokens, Block& block) {
  const int member = consumer.member, start = part.stage + consumer.lane * 16, row_bytes = part.row;
  constexpr int kReads = 2;  // of a stage, on their way at once
  uint4 x[4] = {};           // left undefined, they would live on from layer to layer
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= cut.steps) break;
    x[i] = *reinterpret_cast<const uint4*>(tokens + part.token + i * 512 + consumer.lane * 16);
  }
  // As many stages as a ring holds, then their sums: to wait for each stage's sums takes longer than its products.
#pragma unroll 1
  for (int first = consumer.group; first < stages; first += kStages * kGroups) {
    float sum[kStages] = {}, a[4] = {}, b[4] = {};
#pragma unroll
    for (int n = 0; n < kStages; ++n) {
      if (first + n * kGroups >= stages) break;
      const uint32_t stage =
          first % kGroups * kStages + consumer.place.slot;  // the group, anew: a register
      const uint32_t at = consumer.ring + stage * kStageBytes + start;
      barrier_wait(shared_address(&block.s.full[stage]), consumer.place.parity);
      uint4 low[4], high[4];
      const auto read = [&](int i) {
        const int from = i < cut.steps ? i * 512 : 0;  // what is too much: times 0
        low[i] = read_shared(at + from);
        high[i] = read_shared(at + row_bytes + from);
      };
#pragma unroll
      for (int i = 0; i < kReads; ++i) read(i);
      if (n > 0) sum[n - 1] = diagonal_term(consumer.lane, a, b);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = b[i] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        mma_bf16(a, low[i].x, high[i].x, low[i].y, high[i].y, x[i].x, x[i].y);
        mma_bf16(b, low[i].z, high[i].z, low[i].w, high[i].w, x[i].z, x[i].w);
        if (i + kReads < 4) read(i + kReads);
      }
      __syncwarp();
      if (consumer.lane == 0) barrier_arrive(shared_address(&block.s.empty[stage]));
      consumer.place.advance();
    }
    const float last = diagonal_term(consumer.lane, a, b);
    const int count = min((stages - first + kGroups - 1) / kGroups, kStages);
#pragma unroll
    for (int n = 0; n < kStages; ++n) sum[n] = n + 1 == count ? last : sum[n];
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
#pragma unroll
      for (int n = 0; n < kStages; ++n) sum[n] += __shfl_xor_sync(kAllLanes, sum[n], offset);
    }
#pragma unroll
    for (int n = 0; n < kStages; ++n) {
      if (n < count && consumer.lane % 16 == 0) {
        block.sums[first + n * kGroups][member * 2 + consumer.lane / 16] = sum[n];
      }
    }
  }
}

/// The sum of the block's row `local`.
__device__ __forceinline__ float dense_sum(const DenseCut& cut, const Block& block, int local) {
  const float* sums = block.sums[local >> cut.row_bits];
  const int row = local & ((1 << cut.row_bits) - 1), first = (row / 2) << cut.segment_bits;
  float sum = 0;
#pragma unroll 1
  for (int s = 0; s < 1 << cut.segment_bits; ++s) sum += sums[(first + s) * 2 + row % 2];
  return sum;
}

}  // namespace switchyard::cuda::persistent
