// SPDX-License-Identifier: Apache-2.0
// The words by which the blocks of the persistent step (step_persistent_sm90a.cu) tell each other that something is ready. A fence
// waits for all weights that are on their way to the multiprocessor, so most of what blocks exchange does without:
//   tagged   a value and the layer's number in one word: who finds the number has the value. A hint, a count without a fence, says when to
//            look: all blocks that look in vain slow down those that write
//   tally    a sum over the blocks and the count of those that have added to it, in one word: integers, so the order does not matter
//   event    a count with a fence, where there is time for one
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_small.cuh"
#include "kernels/cuda/tagged.cuh"

namespace switchyard::cuda::persistent {

using namespace small_layer;

/// A word that counts arrivals since the step began, alone in its line.
struct alignas(128) Event {
  uint32_t count;
};
inline constexpr int kMaxKvHeads = 64;
struct Events {
  Event mixed_here, middle, hidden, hidden_here, parts_here, guesses, done;
  Event ranks[2];            // of blocks, by the side of the L2 that they are near
  Event spans[kMaxKvHeads];  // of an attention head that is cut
};

__device__ __forceinline__ void consumers_meet() {
  fixed_barrier<kConsumersBarrier, kConsumerThreads>();
}
/// The same, and whether all of them say yes.
__device__ __forceinline__ bool consumers_agree(bool yes) {
  int all;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\tsetp.ne.s32 p, %1, 0;\n\t"
      "barrier.cta.red.and.pred q, %2, %3, p;\n\tselp.s32 %0, 1, 0, q;\n\t}"
      : "=r"(all)
      : "r"(static_cast<int>(yes)), "n"(kConsumersBarrier), "n"(kConsumerThreads)
      : "memory");
  return all != 0;
}
__device__ __forceinline__ void arrive_at(Event& event) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&event.count) : "memory");
}
__device__ __forceinline__ void poll(const Event& event, uint32_t target) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(&event.count) : "memory");
  } while (now < target);
}
__device__ __forceinline__ void wait_until(const Event& event, uint32_t target) {
  if (threadIdx.x == 0) poll(event, target);
  consumers_meet();
}

// ---- hints: tagged values are on their way

__device__ __forceinline__ void hint_at(Event& event) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(&event.count) : "memory");
}
__device__ __forceinline__ bool hint_is_there(const Event& event, uint32_t target) {
  uint32_t now;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(&event.count) : "memory");
  return now >= target;
}
__device__ __forceinline__ void wait_for_hint(const Event& event, uint32_t target) {
  if (threadIdx.x == 0) {
    while (!hint_is_there(event, target)) {
    }
  }
  consumers_meet();
}

// ---- tagged values: tagged.cuh's words, several at a time

__device__ __forceinline__ void store_number(uint64_t* to, float value, uint32_t tag) {
  store_tagged(to, __float_as_uint(value), tag);
}

/// kWords values, 1, 2 or 4 that follow each other (16 bytes aligned from 2 on); true if all have the tag.
template <int kWords>
struct Tagged {
  uint32_t value[kWords];

  __device__ __forceinline__ bool read(const uint64_t* from, uint32_t tag) {
    bool there = true;
    if constexpr (kWords == 1) {
      const uint64_t word = read_tagged(from);
      value[0] = static_cast<uint32_t>(word);
      there = static_cast<uint32_t>(word >> 32) == tag;
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 2) {
        const TaggedPair pair = read_tagged_pair(from + i);
        value[i] = static_cast<uint32_t>(pair.first);
        value[i + 1] = static_cast<uint32_t>(pair.second);
        there = there && static_cast<uint32_t>(pair.first >> 32) == tag &&
                static_cast<uint32_t>(pair.second >> 32) == tag;
      }
    }
    return there;
  }
  __device__ __forceinline__ void wait(const uint64_t* from, uint32_t tag) {
    while (!read(from, tag)) {
    }
  }
  __device__ __forceinline__ float number(int i) const { return __uint_as_float(value[i]); }
};

// ---- two numbers in a tagged word, where every block reads what all have written: 24 bits of each, so 16 of its mantissa, and 16 of
// the tag. Such tags come again, so every word that is read is written in every layer: what is old has the tag before.

__device__ __forceinline__ uint32_t rounded_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return (finite ? bits + 0x80 : bits) & 0xffffff00u;
}
__device__ __forceinline__ void store_two(uint64_t* to, float first, float second, uint32_t tag) {
  const uint32_t a = rounded_bits(first), b = rounded_bits(second);
  store_tagged(to, b << 16 | a >> 8, tag << 16 | b >> 16);
}
/// Four numbers in two such words.
struct TaggedFour {
  TaggedPair pair;

  __device__ __forceinline__ bool read(const uint64_t* from, uint32_t tag) {
    pair = read_tagged_pair(from);
    return has(pair.first, tag) && has(pair.second, tag);
  }
  __device__ __forceinline__ float number(int i) const {
    const uint64_t word = i < 2 ? pair.first : pair.second;
    return __uint_as_float(static_cast<uint32_t>(i % 2 == 0 ? word << 8 : word >> 16) &
                           0xffffff00u);
  }

 private:
  static __device__ __forceinline__ bool has(uint64_t word, uint32_t tag) {
    return static_cast<uint32_t>(word >> 48) == (tag & 0xffff);
  }
};

// ---- tallies: 56 bits of a sum of at most 255 numbers, each below 2^38 units, over 8 bits of their count

inline constexpr float kTallyUnits = 1048576.0f;  // in 1: logits up to 2^18 of them
inline constexpr int kMostAdders = 255;
// Four tallies to a sector of 32 bytes, sectors apart from each other: what all blocks add to should not meet in one slice of the L2.
inline constexpr int kTallySectorWords = 32;
inline constexpr int kMaxTallies = 256;
// Places in turn: who clears those of two layers on is known to have done so by the event of the layer between.
inline constexpr int kTallyLayers = 4;
inline constexpr int64_t kTallyBytes = int64_t{kMaxTallies / 4} * kTallySectorWords * 8;

__device__ __forceinline__ int tally_at(int i) { return i / 4 * kTallySectorWords + i % 4; }

// What is not a number, or too large, adds 2^47 units: no sum of that and of others is below 2^46 in size.
__device__ __forceinline__ void add_to_tally(uint64_t* tally, float value) {
  const float units = value * kTallyUnits;
  const bool fits = fabsf(units) < 274877906944.0f;
  const int64_t whole = fits ? __float2ll_rn(units) : int64_t{1} << 47;
  const uint64_t word = (static_cast<uint64_t>(whole) << 8) + 1;
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(tally), "l"(word) : "memory");
}
__device__ __forceinline__ int adders_of(uint64_t word) { return static_cast<int>(word & 0xff); }
__device__ __forceinline__ float sum_of(uint64_t word) {
  const int64_t whole = static_cast<int64_t>(word) >> 8;
  if (whole >= int64_t{1} << 46 || whole <= -(int64_t{1} << 46)) return NAN;
  return __ll2float_rn(whole) * (1.0f / kTallyUnits);
}

}  // namespace switchyard::cuda::persistent
