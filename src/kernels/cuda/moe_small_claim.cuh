// SPDX-License-Identifier: Apache-2.0
// Work of the single-launch layer that blocks claim from counters: memory does not serve all multiprocessors equally fast, and whoever is
// quicker takes more. Results do not depend on who does what.
//
//   producer   claims a number, copies its weights, and leaves the number for the consumers
//   consumers  take the numbers in the same order, as far behind as the rings are deep
// Only blocks that run claim, and nothing waits for work that is not claimed: the blocks need not all be resident at once.
// Every block fails to claim once, so a launch takes as many numbers as there are, and one a block; the last to fail says where the next
// launch begins. Nothing has to be cleared.
#pragma once
#include "kernels/cuda/moe_small.cuh"

namespace switchyard::cuda::small_layer {

enum class Claim : uint8_t { item, piece };

// Words of Args::sync, before those of other entries: the numbers claimed since the beginning, how many of them before this
// launch, and how many launches; then, behind those of all entries, values that blocks hand on.
inline constexpr int kClaimWord = 2, kBaseWord = 4, kLaunchWord = 6, kTaggedWord = 1024;

// From the producer to the consumers: numbers on their way. Never full: each but the ends has a stage at least, and there are fewer stages.
struct Queue {
  static constexpr int kEntries = 32;
  uint64_t entry[kEntries];  // turn + 1 | number
  uint64_t known;            // a barrier of one arrival, for what follows
  uint32_t launch, first_item;
  uint32_t base[2];

  __device__ void prepare() {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kEntries) entry[thread] = 0;
    if (thread == 0) barrier_init(shared_address(&known), 1);
  }
  /// One thread of the block: which launch this is, and the first claim.
  __device__ void begin(uint32_t* sync) {
    const volatile uint32_t* const before = sync;
    base[0] = before[kBaseWord];
    base[1] = before[kBaseWord + 1];
    launch = before[kLaunchWord];
    first_item = atomicAdd(sync + kClaimWord, 1u) - base[0];
    barrier_arrive(shared_address(&known));
  }
  __device__ void wait() const { barrier_wait(shared_address(&known), 0); }
  /// Of the values that this launch hands on; never 0, as no launch's before for some 2^31 launches.
  __device__ uint32_t tag() const {
    wait();
    return launch | 0x80000000u;
  }
};

/// The producer's side.
class Claims {
 public:
  __device__ Claims(Queue& queue, uint32_t* sync) : queue_(queue), sync_(sync) {}
  /// A number below `count`, or -1, once. Asked for when it is needed: who asks earlier takes work from blocks that have none.
  __device__ int take(Claim claim, int count) {
    const int which = static_cast<int>(claim);
    int number = 0;
    if (lane_id() == 0) {
      number = static_cast<int>(atomicAdd(sync_ + kClaimWord + which, 1u) - queue_.base[which]);
    }
    return checked(claim, __shfl_sync(kAllLanes, number, 0), count);
  }
  __device__ int first_item(int count) {
    queue_.wait();
    return checked(Claim::item, static_cast<int>(queue_.first_item), count);
  }
  __device__ void leave(int number) {
    if (lane_id() == 0) {
      volatile uint64_t* const entry = &queue_.entry[turn_ % Queue::kEntries];
      *entry = uint64_t{turn_ + 1} << 32 | static_cast<uint32_t>(number);
    }
    ++turn_;
  }

 private:
  __device__ int checked(Claim claim, int number, int count) {
    if (number < count) return number;
    const int all = count + static_cast<int>(gridDim.x), which = static_cast<int>(claim);
    if (number == all - 1 && lane_id() == 0) {
      sync_[kBaseWord + which] = queue_.base[which] + all;
      if (claim == Claim::piece) sync_[kLaunchWord] = queue_.launch + 1;
    }
    return -1;
  }

  Queue& queue_;
  uint32_t* sync_;
  uint32_t turn_ = 0;
};

/// The consumers' side; all threads read. -1: no more.
class ClaimedItems {
 public:
  __device__ explicit ClaimedItems(const Queue& queue) : queue_(queue) {}
  __device__ int first() const { return at(turn_); }
  __device__ int after(int) const { return at(turn_ + 1); }
  __device__ void advance() { ++turn_; }

 private:
  __device__ int at(uint32_t turn) const {
    const volatile uint64_t* const entry = &queue_.entry[turn % Queue::kEntries];
    uint64_t word;
    while (static_cast<uint32_t>((word = *entry) >> 32) != turn + 1) {
    }
    return static_cast<int>(static_cast<uint32_t>(word));
  }

  const Queue& queue_;
  uint32_t turn_ = 0;
};

// ---- the producer warp

/// Experts of hits that are known.
struct KnownPicks {
  const uint8_t* hit_expert;
  __device__ int operator()(int hit) const { return hit_expert[hit]; }
  __device__ void settle() const {}
};

/// Every weight of the claimed work. expert_of.settle() is called when there is time.
template <class Producer, class ExpertOf>
__device__ void produce_claimed(Producer& producer, Queue& queue, const Work& work,
                                const MoeFfn::Args& args, int hits, ExpertOf& expert_of) {
  const Shape& shape = producer.shape;
  const auto *w13 = static_cast<const char*>(args.w13), *w2 = static_cast<const char*>(args.w2);
  Claims claims(queue, args.sync);
  int item = claims.first_item(work.items);
  for (; item >= 0; item = claims.take(Claim::item, work.items)) {
    claims.leave(item);
    producer.up_item(work, item, expert_of(item / work.tiles), w13, [&] { expert_of.settle(); });
  }
  claims.leave(-1);
  expert_of.settle();
  const int pieces = hits > 0 ? shape.up_blocks * 2 * Piece::pieces_in_row(shape) : 0;
  for (int at; (at = claims.take(Claim::piece, pieces)) >= 0;) {
    claims.leave(at);
    const Piece piece(shape, at);
    for (int hit = 0; hit < hits; ++hit) producer.down_hit(piece, hit, expert_of(hit), w2);
  }
  claims.leave(-1);
}

}  // namespace switchyard::cuda::small_layer
