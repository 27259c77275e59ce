// SPDX-License-Identifier: Apache-2.0
// The loading roles of the Hopper MoE kernel: one warp claims items and streams weights, two warps bring tokens. They
// run ahead of the consumers by the depth of the ring.
//
//   weights  a ring of stages [kRows][64], swizzled. full: 1 arrival and the bytes that bulk copies bring; empty: 4 warps x 2 consumers
//   tokens   a ring of units of 64 tokens x 64 inputs, swizzled. A stage is as many units as the item's columns need, side by side:
//            with few columns more stages are on their way. full: kGatherThreads, of a stage's first unit; empty: as above, of each unit
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_ffn_sm90a_list.cuh"
#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda::sm90a {

template <class TileT>
struct Shared {
  alignas(1024) uint8_t weights[TileT::kStages][TileT::kWeightBytes];
  alignas(1024) uint8_t tokens[TileT::kTokenRingBytes];
  alignas(
      1024) uint8_t staging[TileT::kPanels * TileT::kStagedBytes];  ///< results on their way out
  alignas(8) uint64_t full[TileT::kStages], empty[TileT::kStages];
  uint64_t tokens_full[TileT::kApart ? TileT::kTokenUnits : 1],
      tokens_empty[TileT::kApart ? TileT::kTokenUnits : 1];
  uint64_t staged[TileT::kPanels],
      drained[TileT::kPanels];  ///< of the staging panels: all is there; all has left
  uint64_t queue_full[kQueue], queue_empty[kQueue];
  Item queue[kQueue];  ///< claimed items
  Plan plan;
};

/// A place in the ring of tokens. Where it is the weights' ring too, a stage has room for all tokens of a tile.
template <class TileT, bool kApart = TileT::kApart>
struct TokenCursor {
  RingCursor<TileT::kStages> stage;

  __device__ __forceinline__ void wait_empty(Shared<TileT>& shared, int /*units*/) {
    barrier_wait(shared_address(&shared.empty[stage.slot]), stage.parity ^ 1);
  }
  __device__ __forceinline__ void wait_full(Shared<TileT>& shared, int /*units*/) {
    barrier_wait(shared_address(&shared.full[stage.slot]), stage.parity);
  }
  __device__ __forceinline__ uint32_t full(const Shared<TileT>& shared) const {
    return shared_address(&shared.full[stage.slot]);
  }
  __device__ __forceinline__ uint32_t tokens(const Shared<TileT>& shared) const {
    return shared_address(shared.tokens) + stage.slot * TileT::kTokens * kStepBytes;
  }
  __device__ __forceinline__ void wrote(int /*units*/) { stage.advance(); }
  __device__ __forceinline__ void have_read(int /*units*/) { stage.advance(); }
};

/// The same in a ring of its own: stages of some number of units that do not go over the ring's end.
template <class TileT>
struct TokenCursor<TileT, true> {
  int unit = 0;
  uint32_t parities =
      0;  // of the units' barriers: full ones for who reads, empty ones for who writes

  /// Whoever writes: until the units are free.
  __device__ __forceinline__ void wait_empty(Shared<TileT>& shared, int units) {
    fit(units);
    for (int i = unit; i < unit + units; ++i) {
      barrier_wait(shared_address(&shared.tokens_empty[i]), parity(i) ^ 1);
    }
  }
  /// Whoever reads: until the stage is there.
  __device__ __forceinline__ void wait_full(Shared<TileT>& shared, int units) {
    fit(units);
    barrier_wait(full(shared), parity(unit));
  }
  __device__ __forceinline__ uint32_t full(const Shared<TileT>& shared) const {
    return shared_address(&shared.tokens_full[unit]);
  }
  __device__ __forceinline__ uint32_t tokens(const Shared<TileT>& shared) const {
    return shared_address(shared.tokens) + unit * kUnitBytes;
  }
  __device__ __forceinline__ void wrote(int units) {
    parities ^= ((1u << units) - 1) << unit;
    unit += units;
  }
  __device__ __forceinline__ void have_read(int units) {
    parities ^= 1u << unit;
    unit += units;
  }

 private:
  __device__ __forceinline__ void fit(int units) {
    if (unit + units > TileT::kTokenUnits) unit = 0;
  }
  __device__ __forceinline__ uint32_t parity(int of) const { return parities >> of & 1; }
};
__device__ __forceinline__ int units_of(const Item& item) {
  return parts_of(item.columns, kUnitTokens);
}

/// The next item of the queue, for one whole warp of the kQueueReaders. It stays where it is until leave_item.
template <class TileT>
__device__ __forceinline__ const Item& next_item(Shared<TileT>& shared,
                                                 const RingCursor<kQueue>& at) {
  barrier_wait(shared_address(&shared.queue_full[at.slot]), at.parity);
  return shared.queue[at.slot];
}
template <class TileT>
__device__ __forceinline__ void leave_item(Shared<TileT>& shared, RingCursor<kQueue>& at) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&shared.queue_empty[at.slot]));
  at.advance();
}
template <class TileT>
__device__ __forceinline__ Item take_item(Shared<TileT>& shared, RingCursor<kQueue>& at) {
  const Item item = next_item(shared, at);
  leave_item(shared, at);
  return item;
}

/// The items that a block takes: those of its own side while there are any, then the other's, pass after pass. All of pass 1 are taken
/// before any of pass 2, so whoever waits for hidden rows waits for blocks that run. For one whole warp; lane l looks after the l-th list.
template <class TileT>
class Claims {
 public:
  /// Asks for the first item, which may be before it is known how many there are: for each lane, what the constructor takes.
  static __device__ __forceinline__ int ask_first(const MoeFfnParams& p) {
    int* const counters = p.sync + kSyncClaimed;
    const int lane = threadIdx.x % 32, own = list_of(p, lane);
    return lane == 0 ? atomicAdd(&counters[own], 1) : load_relaxed(&counters[own]);
  }
  __device__ __forceinline__ Claims(const List<TileT>& list, const MoeFfnParams& p, int asked)
      : counters_(p.sync + kSyncClaimed),
        lane_(threadIdx.x % 32),
        own_(list_of(p, lane_)),
        size_(lane_ < kLists ? list.num_items(own_) : 0),
        taken_(asked) {}
  /// Asks for the next item, and looks how far the later lists are; settle() waits for the answers.
  __device__ __forceinline__ void ask() {
    if (lane_ == at_) taken_ = atomicAdd(&counters_[own_], 1);
    if (lane_ > at_ && lane_ < kLists) taken_ = load_relaxed(&counters_[own_]);
  }
  /// Whether there is an item: index() of list().
  __device__ __forceinline__ bool settle() {
    while (true) {
      const uint32_t left = __ballot_sync(kAllLanes, lane_ >= at_ && taken_ < size_);
      if (left == 0) return false;
      const int first = __ffs(left) - 1;
      if (first == at_) return true;
      at_ = first;
      if (lane_ == at_) taken_ = atomicAdd(&counters_[own_], 1);
    }
  }
  __device__ __forceinline__ int list() const { return __shfl_sync(kAllLanes, own_, at_); }
  __device__ __forceinline__ int index() const { return __shfl_sync(kAllLanes, taken_, at_); }

 private:
  static __device__ __forceinline__ int list_of(const MoeFfnParams& p, int lane) {
    const int side = has_sides(p) ? side_of_this_block(p.sides) : 0;
    return (lane ^ side) % kLists;
  }

  int* const counters_;
  const int lane_, own_, size_;  // own, size: of this lane, the list and its items
  int taken_;                    // of the list, as last seen
  int at_ = 0;                   // the list that items are taken from
};

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
