// SPDX-License-Identifier: Apache-2.0
// The loading roles of the Hopper MoE kernel: one warp claims items and streams weights, two warps bring tokens. They
// run ahead of the consumers by the depth of the rings (moe_ffn_sm90a_shared.cuh).
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_ffn_sm90a_list.cuh"
#include "kernels/cuda/moe_ffn_sm90a_shared.cuh"
#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda::sm90a {

/// Whole warp: lane l streams the l-th 32-row strip of the item. The next item is claimed meanwhile: late, so that no block holds
/// a long item back, but early enough for the answer.
template <class TileT>
__device__ __forceinline__ void stream_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                            const Item& item, RingCursor<TileT::kStages>& at,
                                            Claims<TileT>& claims) {
  constexpr int kBlockBytes = MoePack::kBlockBytes;
  constexpr int kCopies = TileT::kRows / MoePack::kBlockRows;
  const int lane = threadIdx.x % 32;
  const bool up = item.pass == 0;
  const PackedStrip strip(up ? p.w13 : p.w2, item.expert, item.block * kCopies + lane,
                          up ? 2 * p.ffn_width : p.width, up ? p.width : p.ffn_width, p.sides.mask);
  const char* source = strip.step(item.first_step);
  const int claim_step = max(item.steps - kClaimSteps, 0);
  const uint64_t policy = evict_first();
#pragma unroll 1
  for (int step = 0; step < item.steps; ++step, at.advance(), source += strip.step_bytes()) {
    if (step == claim_step) claims.ask();
    barrier_wait(shared_address(&shared.empty[at.slot]), at.parity ^ 1);
    const uint32_t full = shared_address(&shared.full[at.slot]);
    if (lane == 0) barrier_arrive_expect(full, TileT::kWeightBytes);
    __syncwarp();
    if (lane < kCopies) {
      const uint32_t to = shared_address(shared.weights[at.slot]) + lane * kBlockBytes;
      const char* from = strip.block_in(source);
      if (TileT::kKeepsShared && item.shared) {
        bulk_copy(to, from, kBlockBytes, full);
      } else {
        bulk_copy(to, from, kBlockBytes, full, policy);
      }
    }
  }
}

/// One warp: claims items, tells the others, and streams their weights.
template <class TileT>
__device__ __forceinline__ void claim_and_stream(Shared<TileT>& shared, const MoeFfnParams& p,
                                                 int asked) {
  List<TileT> list(shared.plan, p);
  Claims<TileT> claims(list, p, asked);
  RingCursor<kQueue> queue;
  RingCursor<TileT::kStages> at;
  while (true) {
    const bool any = claims.settle();
    barrier_wait(shared_address(&shared.queue_empty[queue.slot]), queue.parity ^ 1);
    const Item item = any ? list.at(claims.list(), claims.index()) : Item{};
    if (threadIdx.x % 32 == 0) {
      shared.queue[queue.slot] = item;
      barrier_arrive(shared_address(&shared.queue_full[queue.slot]));
    }
    queue.advance();
    if (!any) return;
    stream_item(shared, p, item, at, claims);
  }
}

/// Pass 1: two warps copy the rows of x that the tile's tokens name, 16 bytes a thread, 8 rows at a time.
template <class TileT>
__device__ __forceinline__ void gather_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                            const Item& item, TokenCursor<TileT>& at) {
  constexpr int kRowsAtOnce = kGatherThreads / 8;
  constexpr int kTurns = (TileT::kTokens + kRowsAtOnce - 1) / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 0, "the swizzle is the same in every turn");
  const int thread = threadIdx.x % 128 - 32, chunk = thread % 8, first = thread / 8;
  const int32_t* tokens = p.row_token + shared.plan.row_begin[item.expert] + item.row;
  uint32_t start[kTurns];  // of this thread's rows in x, in units of 16 bytes
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int row = i * kRowsAtOnce + first;
    start[i] = row < item.valid ? static_cast<uint32_t>(tokens[row]) * (p.width / 8) + chunk : 0;
  }
  const int turns = (item.valid - first + kRowsAtOnce - 1) / kRowsAtOnce;
  const int units = units_of(item);
  const uint32_t inside = first * kStepBytes + ((chunk ^ (first & 7)) * 16);
  const uint4* x = reinterpret_cast<const uint4*>(p.x);
#pragma unroll 1
  for (int step = 0; step < item.steps; ++step, at.wrote(units), x += kStepBytes / 16) {
    at.wait_empty(shared, units);
    const uint32_t to = at.tokens(shared) + inside;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      if (i < turns) copy_16(to + i * kRowsAtOnce * kStepBytes, x + start[i]);
    }
    barrier_arrive_after_copies(at.full(shared));
  }
}

/// Which experts' parts are complete, by counters that each stand for a run of experts. For one whole warp: lane l looks after
/// the counters l and l + 32.
class Complete {
 public:
  /// `parts`: of a tile.
  template <class TileT>
  __device__ __forceinline__ Complete(const Shared<TileT>& shared, const MoeFfnParams& p, int parts)
      : run_(parts_of(p.experts, kSyncGroups)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = (threadIdx.x % 32 + 32 * i) * run_, last = min(first + run_, p.experts);
      int tiles = 0;
      for (int e = first; e < last; ++e) tiles += parts_of(shared.plan.rows_of(e), TileT::kTokens);
      expected_[i] = tiles * parts;
    }
  }
  /// Waits until all experts that share this expert's counter are complete.
  __device__ __forceinline__ void wait(const int* counters, int expert) {
    const int mine = expert / run_, lane = threadIdx.x % 32;
    if (!(complete_ >> mine & 1)) {
      // One word is polled: all counters lie in a line or two, and so many readers would slow down the memory behind it.
      const int expected =
          __shfl_sync(kAllLanes, mine < 32 ? expected_[0] : expected_[1], mine % 32);
      while (load_acquire(&counters[mine]) < expected) __nanosleep(32);
      const bool low = load_acquire(&counters[lane]) >= expected_[0];
      const bool high = load_acquire(&counters[lane + 32]) >= expected_[1];
      complete_ = __ballot_sync(kAllLanes, low) | uint64_t{__ballot_sync(kAllLanes, high)} << 32;
    }
    fence_async_global();
    __syncwarp();
  }

 private:
  const int run_;  // experts that share a counter
  int expected_[2];
  uint64_t complete_ = 0;  // bit i: counter i
};
static_assert(kSyncGroups == 64);

/// Pass 2, one thread: the tokens of a stage are one contiguous copy out of a hidden panel.
template <class TileT>
__device__ __forceinline__ void load_hidden_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                                 const Item& item, TokenCursor<TileT>& at) {
  const int units = units_of(item);
  const uint32_t bytes = item.columns * kStepBytes;
  const __nv_bfloat16* source = p.hidden + (static_cast<int64_t>(item.first_step) * p.hidden_rows +
                                            shared.plan.hidden_row(item.expert) + item.row) *
                                               kStepInputs;
  const int64_t panel = static_cast<int64_t>(p.hidden_rows) * kStepInputs;
  [[maybe_unused]] const uint64_t policy = evict_last_if(p.keeps_hidden);
#pragma unroll 1
  for (int step = 0; step < item.steps; ++step, at.wrote(units), source += panel) {
    at.wait_empty(shared, units);
    const uint32_t full = at.full(shared);
    barrier_expect(full, bytes);
    if constexpr (TileT::kKeepsHidden) {
      bulk_copy(at.tokens(shared), source, bytes, full, policy);
    } else {
      bulk_copy(at.tokens(shared), source, bytes, full);
    }
    barrier_arrive(full, kGatherThreads);
  }
}

/// Two warps; in pass 2 the first of them.
template <class TileT>
__device__ __forceinline__ void load_tokens(Shared<TileT>& shared, const MoeFfnParams& p) {
  RingCursor<kQueue> queue;
  TokenCursor<TileT> at;
  Item item = take_item(shared, queue);
  for (; item.steps > 0 && item.pass == 0; item = take_item(shared, queue)) {
    gather_item(shared, p, item, at);
  }
  Complete hidden(shared, p, p.ffn_width / 64);
  for (; item.steps > 0; item = take_item(shared, queue)) {
    if (threadIdx.x % 128 >= 64) continue;
    hidden.wait(p.sync, item.expert);
    if (TileT::kSplits && item.carried) {
      while (load_acquire(&p.sync[kSyncCarried + item.block]) < shared.plan.tiles) __nanosleep(32);
    }
    if (threadIdx.x % 32 == 0) load_hidden_item(shared, p, item, at);
    __syncwarp();
  }
}

}  // namespace switchyard::cuda::sm90a
