// SPDX-License-Identifier: Apache-2.0
// Dense products of one token in the persistent step. Weights stay as the checkpoint has them: a stage is whole rows.
//
// The mma has 8 columns and the token is one. So its columns take 8 runs of inputs in place of 8 tokens: row g of the weights'
// operand holds run g of a weight row, column g that of the token, and the sum is the diagonal. A warp reads 512 bytes of a row that
// follow each other, without bank conflicts; rows 8 to 15 of the operand are a second weight row.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

// Both diagonals of a warp: lane 0 gets the first's sum, lane 16 the second's.
__device__ __forceinline__ float diagonal_sum(int lane, const float (&a)[4], const float (&b)[4]) {
  const int g = lane / 4, q = lane % 4;
  float low = g % 2 == 0 ? a[0] + b[0] : a[1] + b[1];
  float high = g % 2 == 0 ? a[2] + b[2] : a[3] + b[3];
  if (q != g / 2) low = high = 0;
  const bool upper = lane >= 16;
  float sum = upper ? high : low;
  sum += __shfl_xor_sync(kAllLanes, upper ? low : high, 16);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  return sum;
}

/// All stages of this block into block.sums; `tokens` is the bf16 row in shared memory.
template <class Consumer>
__device__ __forceinline__ void consume_dense(Consumer& consumer, const DenseCut& cut, int stages,
                                              const char* tokens, Block& block) {
  const int member = consumer.member;
  const int segment = member & ((1 << cut.segment_bits) - 1);
  const int row_bytes = (cut.steps * 512) << cut.segment_bits;
  const int offset =
      (member >> cut.segment_bits) * 2 * row_bytes + segment * cut.steps * 512 + consumer.lane * 16;
  uint4 x[4] = {};  // left undefined, they would live on from layer to layer
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= cut.steps) break;
    x[i] = *reinterpret_cast<const uint4*>(tokens + (segment * cut.steps + i) * 512 +
                                           consumer.lane * 16);
  }
#pragma unroll 1
  for (int j = consumer.group; j < stages; j += kGroups) {
    const uint32_t stage = consumer.group * kStages + consumer.place.slot;
    const uint32_t at = consumer.ring + stage * kStageBytes + offset;
    float a[4] = {}, b[4] = {};
    barrier_wait(shared_address(&block.s.full[stage]), consumer.place.parity);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= cut.steps) break;
      const uint4 low = Consumer::read(at + i * 512),
                  high = Consumer::read(at + row_bytes + i * 512);
      mma_bf16(a, low.x, high.x, low.y, high.y, x[i].x, x[i].y);
      mma_bf16(b, low.z, high.z, low.w, high.w, x[i].z, x[i].w);
    }
    __syncwarp();
    if (consumer.lane == 0) barrier_arrive(shared_address(&block.s.empty[stage]));
    consumer.place.advance();
    const float sum = diagonal_sum(consumer.lane, a, b);
    if (consumer.lane % 16 == 0) block.sums[j][member * 2 + consumer.lane / 16] = sum;
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
