// SPDX-License-Identifier: Apache-2.0
// The down product of the persistent step. The token's hidden rows, one a pick, are brought into shared memory where they fit; a
// group of warps adds up its picks with their weights in registers, and the groups meet once.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

/// Where the inputs of a piece are: pick k's from inputs + k * stride on.
struct PieceInputs {
  const bf16* inputs;
  int64_t stride;
};

/// All consumers. From `hidden` [K, Fp]; `room` bytes at `rows`. They must meet before they read.
__device__ __forceinline__ PieceInputs bring_inputs(const Shape& shape, const Piece& piece,
                                                    const bf16* hidden, char* rows, int room,
                                                    int thread) {
  const int top_k = shape.rule.top_k, chunks = piece.blocks * (MoePack::kAtomInputs / 8);
  const int64_t stride = int64_t{shape.down_blocks} * MoePack::kAtomInputs;
  const bf16* from = hidden + piece.begin * MoePack::kAtomInputs;
  if (top_k * chunks * 16 > room) return {from, stride};
  auto* to = reinterpret_cast<uint4*>(rows);
  for (int i = thread; i < top_k * chunks; i += kConsumerThreads) {
    const int k = i / chunks, chunk = i % chunks;
    to[i] = __ldcg(reinterpret_cast<const uint4*>(from + k * stride) + chunk);
  }
  return {reinterpret_cast<const bf16*>(rows), piece.blocks * MoePack::kAtomInputs};
}

/// This warp's share of the piece's 32 outputs, weighted, into `share`.
__device__ __forceinline__ void add_picks(Experts& experts, const Piece& piece,
                                          const PieceInputs& from, float* share) {
  const int step = piece.split ? kGroups : 1, group = experts.group;
  const int top_k = experts.shape.rule.top_k;
  float total[2][2] = {};  // outputs 16 m + 8 i + g, in lanes of q = 0
#pragma unroll 1
  for (int k = piece.split ? 0 : group; k < top_k; k += piece.split ? 1 : kGroups) {
    Experts::Sums sums = {};
#pragma unroll 1
    for (int c = piece.split ? group : 0; c < piece.stages; c += step) {
      const int blocks = piece.blocks - c * kStageBlocks;
      Experts::Tokens tokens = {};
      if (experts.member < blocks) {
        const auto* at = reinterpret_cast<const uint4*>(from.inputs + k * from.stride +
                                                        c * kStageInputs + experts.member * 64 +
                                                        experts.q * 16);
        tokens.chunk[0][0] = at[0];
        tokens.chunk[1][0] = at[1];
      }
      experts.add_stage(sums, tokens, 1, blocks);
    }
    const float weight = experts.s.pick_weight[k];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) total[m][i] = fmaf(weight, sums[m][0][i * 2], total[m][i]);
    }
  }
  if (experts.q != 0) return;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < 2; ++i) share[m * 16 + i * 8 + experts.g] = total[m][i];
  }
}

}  // namespace switchyard::cuda::persistent
