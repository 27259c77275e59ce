// SPDX-License-Identifier: Apache-2.0
// Work of the single-launch layer that blocks claim from counters: memory does not serve all multiprocessors equally fast, and whoever is
// quicker takes more. Results do not depend on who does what.
//
//   producer   claims a number, copies its weights, and leaves what it stands for to the consumers
//   consumers  take the work in the same order, as far behind as the rings are deep
//   lists      where weights are placed by sides of the L2 (ops/l2_sides.h), items and pieces are two lists each, by the side that their
//              weights are on. A block takes those of its own side first, then the other's; and all items before any piece
// Only blocks that run claim, and nothing waits for work that is not claimed: the blocks need not all be resident at once.
// Every block fails to claim once in every list, so a launch takes as many numbers of it as there are, and one a block; the last to fail
// says where the next launch begins. Nothing has to be cleared.
#pragma once
#include "kernels/cuda/moe_small.cuh"
#include "kernels/cuda/packed.cuh"

namespace switchyard::cuda::small_layer {

inline constexpr int kLists =
    4;  // items on side 0 and on side 1, then pieces; without sides, the first of each kind

// Words of Args::sync, before those of other entries. Of each list: the numbers claimed since the beginning, and how many of them before
// this launch; then how many launches; then, behind those of all entries, values that blocks hand on.
inline constexpr int kClaimWord = 0, kBaseWord = 4, kLaunchWord = 8, kTaggedWord = 1024;

// From the producer to the consumers: work on its way. Never full: each but the ends has a stage at least, and there are fewer stages.
struct Queue {
  static constexpr int kEntries = 32;
  uint64_t entry[kEntries];  // turn + 1 | work
  uint64_t known;            // a barrier of one arrival, for what follows
  uint32_t launch, first_claim;
  uint32_t base[kLists];
  int side;  // whose lists this block takes from first

  __device__ void prepare(const L2Sides& sides) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kEntries) entry[thread] = 0;
    if (thread == 0) barrier_init(shared_address(&known), 1);
    if (thread == 0) side = sides.mask != 0 ? side_of_this_block(sides) : 0;
  }
  /// One thread of the block: which launch this is, and the first claim.
  __device__ void begin(uint32_t* sync) {
    const volatile uint32_t* const before = sync;
#pragma unroll
    for (int i = 0; i < kLists; ++i) base[i] = before[kBaseWord + i];
    launch = before[kLaunchWord];
    first_claim = atomicAdd(sync + kClaimWord + side, 1u);
    barrier_arrive(shared_address(&known));
  }
  __device__ void wait() const { barrier_wait(shared_address(&known), 0); }
  /// Of the values that this launch hands on; never 0, as no launch's before for some 2^31 launches.
  __device__ uint32_t tag() const {
    wait();
    return launch | 0x80000000u;
  }
};

/// The producer's side: a block takes from its lists one after the other.
template <bool kPlaced>
class Claims {
 public:
  /// `items`, `pieces`: all that there are.
  __device__ Claims(Queue& queue, uint32_t* sync, int items, int pieces)
      : queue_(queue), sync_(sync), items_(items / kSides), pieces_(pieces / kSides) {}

  /// The first claim is made already.
  __device__ bool first() {
    queue_.wait();
    go_to(0);
    number_ = static_cast<int>(queue_.first_claim - base_);
    return number_ < size_ || try_others();
  }
  /// Claims work; false: there is none. Asked for when it is needed: who asks earlier takes work from blocks that have none.
  __device__ bool next() {
    uint32_t answer = 0;
    if (lane_id() == 0) answer = atomicAdd(sync_ + kClaimWord + list_, 1u);
    number_ = static_cast<int>(__shfl_sync(kAllLanes, answer, 0) - base_);
    return number_ < size_ || try_others();
  }
  __device__ bool is_item() const { return at_ < 2; }
  /// What is claimed, in its list.
  __device__ int number() const { return number_; }
  /// The at-th of the list's strips in a matrix of so many strips.
  __device__ int strip(int at, int strips) const {
    return kPlaced ? MoePack::strip_of(at, half(), strips) : at;
  }
  __device__ int half() const { return list_ % 2; }
  __device__ void leave(int work) {
    if (lane_id() == 0) {
      volatile uint64_t* const entry = &queue_.entry[turn_ % Queue::kEntries];
      *entry = uint64_t{turn_ + 1} << 32 | static_cast<uint32_t>(work);
    }
    ++turn_;
  }

 private:
  static constexpr int kSides = kPlaced ? 2 : 1;

  __device__ int list_at(int at) const { return at ^ queue_.side; }
  __device__ void go_to(int at) {
    at_ = at;
    list_ = list_at(at);
    base_ = queue_.base[list_];
    size_ = at < 2 ? items_ : pieces_;
  }
  // After a claim that failed. Most often the other side's items are gone as well, so a piece is claimed along with them.
  __device__ bool try_others() {
    while (number_ >= size_) {
      fail();
      const int at = at_ + kLists / 2 / kSides;
      if (at >= kLists) return false;
      const bool holds_piece = at_ == 1;
      go_to(at);
      if (holds_piece) {
        number_ = piece_;
        continue;
      }
      const int pieces = list_at(2);
      uint32_t answer = 0;
      if (lane_id() == 0) answer = atomicAdd(sync_ + kClaimWord + list_, 1u);
      if (lane_id() == 1 && at == 1) answer = atomicAdd(sync_ + kClaimWord + pieces, 1u);
      number_ = static_cast<int>(__shfl_sync(kAllLanes, answer, 0) - base_);
      piece_ = static_cast<int>(__shfl_sync(kAllLanes, answer, 1) - queue_.base[pieces]);
    }
    return true;
  }
  // Of all blocks the last to fail in this list prepares it for the next launch.
  __device__ void fail() {
    const int all = size_ + static_cast<int>(gridDim.x);
    if (number_ != all - 1 || lane_id() != 0) return;
    sync_[kBaseWord + list_] = base_ + all;
    if (list_ == 2) sync_[kLaunchWord] = queue_.launch + 1;
  }

  Queue& queue_;
  uint32_t* sync_;
  int items_, pieces_;  // of a list
  uint32_t turn_ = 0;
  int at_ = 0, list_ = 0, size_ = 0;  // which of its lists the block takes from
  uint32_t base_ = 0;
  int number_ = 0;
  int piece_ = 0;  // claimed while the other side's items are taken
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

}  // namespace switchyard::cuda::small_layer
