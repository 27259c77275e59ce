// SPDX-License-Identifier: Apache-2.0
// Token rows as the warps of the single-launch layer read them: plain bf16, and between its products words that carry a tag.
#pragma once
#include "kernels/cuda/moe_small.cuh"
#include "kernels/cuda/tagged.cuh"

namespace switchyard::cuda::small_layer {

// Hidden rows lie as words of two values and a tag, in the order in which the lanes of a quarter read them: lane q reads inputs
// [16 q, 16 q + 16) of 64 by four reads of two pairs. The word of a pair of inputs, in its row:
__device__ inline int hidden_word(int pair) {
  const int of_lane = pair % 8;
  return pair / 32 * 32 + of_lane / 2 * 8 + pair % 32 / 8 * 2 + of_lane % 2;
}

// The tokens that a lane multiplies with one weight block: chunks 2 q and 2 q + 1 of 64 inputs, so that the quarters of
// a warp read all banks of the weights.
template <int kTilesN>
struct TokensOf {
  uint4 chunk[2][kTilesN];
};
// Where the tokens of this warp's next stage are. While registers last (8 tokens) they are read one stage ahead, over the
// borders of items and hits: the way to L2 is as long as the work on a stage.
template <int kTilesN>
struct PlainRows {
  using Tokens = TokensOf<kTilesN>;
  using Raw = Tokens;
  const bf16* row[kTilesN];
  int tiles = 0;   // n8 that exist
  int blocks = 0;  // weight blocks from this stage on

  __device__ Tokens settle(const Tokens& tokens, int) const { return tokens; }
  __device__ Tokens read(int member) const {
    Tokens tokens = {};
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (member >= blocks || n >= tiles) break;
      tokens.chunk[0][n] = reinterpret_cast<const uint4*>(row[n])[0];
      tokens.chunk[1][n] = reinterpret_cast<const uint4*>(row[n])[1];
    }
    return tokens;
  }
  __device__ void advance(int stages) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) row[n] += stages * kStageInputs;
    blocks -= stages * kStageBlocks;
  }
};

// The same of tagged words; what was read ahead is asked for again until its tags are there.
template <int kTilesN>
struct TaggedRows {
  using Tokens = TokensOf<kTilesN>;
  struct Raw {
    TaggedPair pair[4][kTilesN];
  };
  const uint64_t* row[kTilesN];
  int tiles = 0, blocks = 0;
  uint32_t tag = 0;

  __device__ Raw read(int member) const {
    Raw raw = {};
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (member >= blocks || n >= tiles) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) raw.pair[i][n] = read_tagged_pair(row[n] + i * 8);
    }
    return raw;
  }
  __device__ bool missing(const Raw& raw, int member) const {
    uint32_t wrong = 0;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (member >= blocks || n >= tiles) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wrong |= static_cast<uint32_t>(raw.pair[i][n].first >> 32) ^ tag;
        wrong |= static_cast<uint32_t>(raw.pair[i][n].second >> 32) ^ tag;
      }
    }
    return wrong != 0;
  }
  __device__ Tokens settle(Raw raw, int member) const {
    while (__any_sync(kAllLanes, missing(raw, member))) raw = read(member);
    Tokens tokens;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const TaggedPair &a = raw.pair[half * 2][n], &b = raw.pair[half * 2 + 1][n];
        tokens.chunk[half][n] = {static_cast<uint32_t>(a.first), static_cast<uint32_t>(a.second),
                                 static_cast<uint32_t>(b.first), static_cast<uint32_t>(b.second)};
      }
    }
    return tokens;
  }
  __device__ void advance(int stages) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) row[n] += stages * (kStageInputs / 2);
    blocks -= stages * kStageBlocks;
  }
};

}  // namespace switchyard::cuda::small_layer
