// SPDX-License-Identifier: Apache-2.0
// The end of norm_gate_sm90a.cu: from picks to the order of rows, sorted by expert, then token. Every block tells its tokens' picks; the
// first of each cluster counts them, and gives its cluster's picks their rows. The others make room for the next launch.
//
//   words    [0] launches that are over; [1 + ceil(K / 4) t + i] picks 4 i to 4 i + 3 of token t, a byte each, tagged with the number of this
//            launch (tagged.cuh), so nothing is reset
//   waiting  for the picks of all tokens: all blocks must be on the device at once
#pragma once
#include "kernels/cuda/norm_gate_tokens_sm90a.cuh"
#include "kernels/cuda/tagged.cuh"

namespace switchyard::cuda::gate_parts {

inline constexpr int kWordPicks = 4;
static_assert(GateScores::kWords == 1 + kMostTokens * MoeRoute::kMaxTopK / kWordPicks);

__device__ __forceinline__ int words_of_token(const GateScores& scores) {
  return (scores.rule.top_k + kWordPicks - 1) / kWordPicks;
}

/// Whole warp; lane k has pick k.
__device__ __forceinline__ void tell_picks(const GateScores& scores, int64_t t, int expert,
                                           uint32_t launch) {
  const int lane = lane_id();
  uint32_t picks = lane < scores.rule.top_k ? static_cast<uint32_t>(expert) << lane % 4 * 8 : 0;
  picks |= __shfl_xor_sync(kAllLanes, picks, 1);
  picks |= __shfl_xor_sync(kAllLanes, picks, 2);
  if (lane % 4 != 0 || lane >= scores.rule.top_k) return;
  store_tagged(scores.words + 1 + t * words_of_token(scores) + lane / 4, picks, launch);
}

/// Whole block: counts the picks of all tokens, and keeps those of its cluster.
template <class Shared>
__device__ __forceinline__ void count_picks_of_all(Shared& s, const GateScores& scores, int tokens,
                                                   const ClusterTokens& own) {
  constexpr int kAtOnce = 2;
  const int each = words_of_token(scores), count = tokens * each;
  const uint32_t launch = s.launch;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kAtOnce * kThreads) {
    uint64_t word[kAtOnce];
    bool all_there = false;
    while (!all_there) {
      all_there = true;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kThreads < count)
          word[i] = read_tagged(scores.words + 1 + first + i * kThreads);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        all_there &= first + i * kThreads >= count || word[i] >> 32 == launch;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads, token = at / each;
      if (at >= count) break;
      const int pick = at % each * kWordPicks, own_token = token - own.first;
      const int picks = min(scores.rule.top_k - pick, kWordPicks);
      for (int p = 0; p < picks; ++p) {
        const uint32_t expert = static_cast<uint32_t>(word[i] >> p * 8) & 0xff;
        atomicAdd(&s.count[expert], 1 << 16 | (own_token < 0 ? 1 : 0));
        if (own_token < 0 || own_token >= own.count) continue;
        atomicOr(&s.chosen[expert][own_token / 32], 1u << own_token % 32);
        s.own_pick[own_token * scores.rule.top_k + pick + p] = static_cast<uint8_t>(expert);
      }
    }
  }
}

/// Whole block, one thread an expert: the row of this cluster's first pick of each. The first block says where experts begin.
template <class Shared>
__device__ __forceinline__ void scan_experts(Shared& s, const GateScores& scores) {
  const DeviceRouting& routing = scores.routing;
  const int e = static_cast<int>(threadIdx.x), experts = scores.rule.experts, lane = lane_id();
  const int counted = e < experts ? s.count[e] : 0, all = counted >> 16, before = counted & 0xffff;
  int through = all;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int lower = __shfl_up_sync(kAllLanes, through, step);
    if (lane >= step) through += lower;
  }
  const uint32_t hits = __ballot_sync(kAllLanes, all > 0);
  if (lane == kWarp - 1) {
    s.warp_rows[warp_id()] = through;
    s.warp_hits[warp_id()] = __popc(hits);
  }
  __syncthreads();
  if (e >= experts) return;
  int row = through - all, hit = __popc(hits & ((1u << lane) - 1));
  for (int w = 0; w < warp_id(); ++w) {
    row += s.warp_rows[w];
    hit += s.warp_hits[w];
  }
  s.first_row[e] = row + before;
  if (blockIdx.x > 0) return;
  routing.slot_offset[e] = row;
  if (all > 0) routing.hit[hit] = e;
  if (e == experts - 1) {
    routing.slot_offset[experts] = row + all;
    *routing.num_hit = hit + (all > 0 ? 1 : 0);
  }
}

/// Whole block, the first of its cluster.
template <class Shared>
__device__ __forceinline__ void place_picks(Shared& s, const GateScores& scores, int tokens,
                                            const ClusterTokens& own) {
  const int thread = static_cast<int>(threadIdx.x), top_k = scores.rule.top_k;
  const int first = own.first;
  count_picks_of_all(s, scores, tokens, own);
  __syncthreads();
  if (blockIdx.x == 0 && thread == 0) {
    store_tagged(scores.words, s.launch, 0);  // all have told their picks, so they know the number
  }
  scan_experts(s, scores);
  __syncthreads();
  for (int i = thread; i < own.count * top_k; i += kThreads) {
    const int token = i / top_k, expert = s.own_pick[i];
    const uint64_t chosen = uint64_t{s.chosen[expert][1]} << 32 | s.chosen[expert][0];
    const int row = s.first_row[expert] + __popcll(chosen & ((uint64_t{1} << token) - 1));
    scores.routing.row_token[row] = first + token;
    scores.routing.pick_row[int64_t{first} * top_k + i] = row;
  }
}

}  // namespace switchyard::cuda::gate_parts
