// SPDX-License-Identifier: Apache-2.0
// The experts of the persistent step for its one token: pick k is row k of the hidden rows. Weights are packed as MoePack says; a warp
// has a block of 32 rows and 64 inputs of each stage of its group.
//
//   up     an item is 16 hidden columns of a pick: all warps share its inputs, one in turn adds up and activates
//   down   a piece is 32 outputs and a run of inputs of every pick; a warp adds up its blocks with their picks' weights in registers
#pragma once
#include "kernels/cuda/persistent_deal.cuh"

namespace switchyard::cuda::persistent {

/// This warp's part of 32 packed rows; `share` has a float of each.
__device__ __forceinline__ void leave_share(const Experts& experts, const float (&sum)[2][2],
                                            float* share) {
  if (experts.q != 0) return;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < 2; ++i) share[m * 16 + i * 8 + experts.g] = sum[m][i];
  }
}
/// The sum of all warps' parts of row `lane`.
__device__ __forceinline__ float sum_shares(const float* shares, int lane) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kConsumers; ++w) sum += shares[w * kOutputs + lane];
  return sum;
}
/// One stage; `at` are this lane's 16 inputs, anywhere.
__device__ __forceinline__ void add_stage(Experts& experts, Experts::Sums& sums, const bf16* at,
                                          int blocks) {
  Experts::Tokens tokens = {};
  if (experts.member < blocks) {
    tokens.chunk[0][0] = reinterpret_cast<const uint4*>(at)[0];
    tokens.chunk[1][0] = reinterpret_cast<const uint4*>(at)[1];
  }
  experts.add_stage(sums, tokens, 1, blocks);
}

/// All consumers: the next stages of the rings are of no use.
__device__ __forceinline__ void drop_stages(Experts& experts, int stages) {
#pragma unroll 1
  for (int i = experts.group; i < stages; i += kGroups) {
    const uint32_t stage = experts.group * kStages + experts.place.slot;
    barrier_wait(shared_address(&experts.s.full[stage]), experts.place.parity);
    __syncwarp();
    if (experts.lane == 0) barrier_arrive(shared_address(&experts.s.empty[stage]));
    experts.place.advance();
  }
}

/// All consumers. The rings hold `guessed` stages of guessed picks already. `row` is the token in shared memory. Hidden columns go to `hidden`, by twos: tagged, in a word, or plainly.
__device__ __forceinline__ void multiply_up(Experts& experts, const Block& block, int guessed,
                                            const bf16* row, float* shares, void* hidden,
                                            bool tagged, uint32_t tag) {
  const Shape& shape = experts.shape;
  const int blocks = static_cast<int>(gridDim.x), lane = experts.lane;
  const bf16* const own = row + experts.group * kStageInputs + experts.member * 64 + experts.q * 16;
  int turn = 0;  // who adds up, and which of two places has the shares
#pragma unroll 1
  for (int item = block.rank; item < experts.work.items; item += blocks) {
    const int ahead = take_guessed(experts.work, guessed);
    if (ahead > 0 && guessed_wrong(block, item)) {
      drop_stages(experts, ahead);
      for (int later = item + blocks; guessed > 0 && later < experts.work.items; later += blocks) {
        drop_stages(experts, take_guessed(experts.work, guessed));
      }
      guessed = 0;
    }
    Experts::Sums sums = {};
#pragma unroll 1
    for (int c = experts.group; c < experts.work.item_stages; c += kGroups) {
      add_stage(experts, sums, own + (c - experts.group) * kStageInputs,
                shape.up_blocks - c * kStageBlocks);
    }
    float* const place = shares + turn % 2 * (kConsumers * kOutputs);
    const float part[2][2] = {{sums[0][0][0], sums[0][0][2]}, {sums[1][0][0], sums[1][0][2]}};
    leave_share(experts, part, place + experts.warp * kOutputs);
    consumers_meet();
    if (experts.warp == turn % kConsumers) {
      const float gate = sum_shares(place, lane);
      const float up = __shfl_down_sync(kAllLanes, gate, 8);
      const float value = glu(shape.activation, gate, up);
      const float next = __shfl_down_sync(kAllLanes, value, 1);
      const int strip = strip_of_item(shape, item % experts.work.tiles, experts.work.tiles);
      const int at = strip * MoePack::kBlockHidden + lane / 16 * 8 + lane % 8;
      if (lane % 16 < 8 && lane % 2 == 0) {
        const int first = item / experts.work.tiles * shape.down_blocks * MoePack::kAtomInputs;
        const int to = (first + at) / 2;
        const uint32_t pair = pack_bf16(value, next);
        if (tagged) {
          store_tagged(static_cast<uint64_t*>(hidden) + to, pair, tag);
        } else {
          static_cast<uint32_t*>(hidden)[to] = pair;
        }
      }
    }
    ++turn;
  }
}

/// All consumers: the inputs of a piece, from tagged `hidden` [K, Fp], to `rows` [K, blocks * 64]. They must meet before they read.
__device__ __forceinline__ void bring_inputs(const Shape& shape, const Piece& piece,
                                             const uint64_t* hidden, char* rows, uint32_t tag,
                                             int thread) {
  const int quads =
      piece.blocks * (MoePack::kAtomInputs / 4);  // of a pick: four values in two words
  const int stride = shape.down_blocks * (MoePack::kAtomInputs / 2);
  const uint64_t* from = hidden + piece.begin * (MoePack::kAtomInputs / 2);
#pragma unroll 2
  for (int i = thread; i < shape.rule.top_k * quads; i += kConsumerThreads) {
    Tagged<2> pair;
    pair.wait(from + i / quads * stride + i % quads * 2, tag);
    reinterpret_cast<uint2*>(rows)[i] = make_uint2(pair.value[0], pair.value[1]);
  }
}

/// This warp's share of the piece's 32 outputs, weighted, into `share`. Stages hold the picks' weight blocks one behind the other, whichever
/// pick they are of. Pick k's inputs of the piece are at inputs + k * stride.
__device__ __forceinline__ void add_picks(Experts& experts, const Piece& piece, const bf16* inputs,
                                          int64_t stride, float* share) {
  const int all = experts.shape.rule.top_k * piece.blocks;
  float total[2][2] = {};
#pragma unroll 1
  for (int first = experts.group * kStageBlocks; first < all; first += kGroups * kStageBlocks) {
    const int block = min(first + experts.member, all - 1), k = block / piece.blocks;
    Experts::Sums sums = {};
    add_stage(
        experts, sums,
        inputs + k * stride + (block - k * piece.blocks) * MoePack::kAtomInputs + experts.q * 16,
        all - first);
    const float weight = experts.s.pick_weight[k];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) total[m][i] = fmaf(weight, sums[m][0][i * 2], total[m][i]);
    }
  }
  leave_share(experts, total, share);
}

}  // namespace switchyard::cuda::persistent
