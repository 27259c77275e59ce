// SPDX-License-Identifier: Apache-2.0
// The foresight of the persistent step: two warps that guess a layer's picks from the residual stream before attention. From the end of the
// q, k, v product to the picks the memory has little to do, some 8 us of a layer; so the feeding thread goes on with the first weights
// that this block reads of the experts, as guessed. They are few, of the highest guesses, and most of these are right, as attention adds
// little to the stream of one layer. What is wrong is dropped and costs its bytes.
//
//   guess   a block an expert: the row that the q, k, v product reads, times the gate's row in its scale (PersistentLayer::foresight),
//           half of the inputs each warp
//   order   every block makes the guessed picks from all guesses: K times the highest
//   settle  the picks, once they are there, take the places of their guesses, so that what was read is what those places want
// Guesses are sums in a fixed order, and all blocks wait for all of them: the same call gives the same places, and so the same bits.
// Source: Eliseev and Mazur 2023, arXiv 2312.17238, who guess a layer's experts from the stream of the layer before, to bring them from the host.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

class Foresight {
  static constexpr int kEach = kMostGuessed / 32;
  static constexpr int kAhead = 2;      // of 256 inputs
  static constexpr int kPauseNs = 100;  // while others guess: there is time
  static_assert(kEach == 4);

 public:
  __device__ Foresight(const PersistentStep& step, const Plan& plan, Block& block, uint32_t rows)
      : step_(step), plan_(plan), block_(block), rows_(rows) {}

  __device__ void run() {
#pragma unroll 1
    for (int l = 0; l < step_.layers; ++l) {
      barrier_wait(shared_address(&block_.described), l & 1);
      guess(l);
      if (lane() == 0) barrier_arrive(shared_address(&block_.rows_read));
      if (half() == 0) order(l);
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return fresh_thread() % 32; }
  // Which half of the inputs this warp multiplies.
  static __device__ __forceinline__ int half() { return fresh_thread() / 32 % 2; }
  __device__ __forceinline__ uint32_t tag(int l) const { return block_.epoch + l + 1; }
  __device__ int experts() const { return plan_.shape.rule.experts; }
  __device__ uint64_t* words() const {
    return reinterpret_cast<uint64_t*>(static_cast<char*>(step_.workspace) + plan_.at.guesses);
  }

  // Of this block's experts, half of a logit each, without the norm's scale. The gate's values are read before the row is there.
  __device__ __forceinline__ void guess(int l) const {
    const int inputs = plan_.shape.width / 2;
#pragma unroll 1
    for (unsigned e = blockIdx.x; e < static_cast<unsigned>(experts()); e += gridDim.x) {
      const int first = half() * inputs + lane() * 8;
      const auto* gate =
          static_cast<const bf16*>(block_.layer[l & 1].foresight) + (e * plan_.shape.width + first);
      uint32_t row = rows_ + first * 2;
      float sum = 0;
#pragma unroll 1
      for (int left = inputs - lane() * 8; left > 0; left -= kAhead * 256) {
        uint4 g[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          g[i] = make_uint4(0, 0, 0, 0);
          if (left > i * 256) g[i] = load_stream(gate + i * 256);
        }
        gate += kAhead * 256;
        barrier_wait(shared_address(&block_.rows_there), l & 1);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const uint4 x =
              read_shared(row + (left > i * 256 ? i * 512 : 0));  // what is too much: times 0
          sum += dot(g[i].x, x.x) + dot(g[i].y, x.y) + (dot(g[i].z, x.z) + dot(g[i].w, x.w));
        }
        row += kAhead * 512;
      }
      sum = warp_sum(sum);
      if (lane() != 0) continue;
      store_number(words() + 2 * e + half(), sum, tag(l));
      hint_at(block_.events->guesses);
    }
    barrier_wait(shared_address(&block_.rows_there), l & 1);
    __syncwarp();
  }
  static __device__ __forceinline__ float dot(uint32_t a, uint32_t b) {
    const float low = __uint_as_float(a << 16) * __uint_as_float(b << 16);
    return fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u), low);
  }

  // The guessed picks, from the highest on. What is no number comes first or last, as its bits say.
  __device__ __forceinline__ void order(int l) const {
    if (lane() == 0) {
      while (!hint_is_there(block_.events->guesses, (l + 1) * experts() * 2)) __nanosleep(kPauseNs);
    }
    if (lane() < plan_.shape.rule.top_k) block_.guessed_place[block_.guess[lane()]] = kNoPlace;
    __syncwarp();
    uint32_t key[kEach] = {};
    const uint32_t tag = this->tag(l);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = i * 32 + lane();
      if (e >= experts()) break;
      Tagged<2> halves;
      halves.wait(words() + 2 * e, tag);
      const uint32_t number = order_key(halves.number(0) + halves.number(1));
      key[i] = (number & ~(kMostGuessed - 1u)) | static_cast<uint32_t>(e);
    }
#pragma unroll 1
    for (int k = 0; k < plan_.shape.rule.top_k; ++k) {
      const uint32_t best =
          __reduce_max_sync(kAllLanes, max(max(key[0], key[1]), max(key[2], key[3])));
#pragma unroll
      for (int i = 0; i < kEach; ++i) key[i] = key[i] == best ? 0 : key[i];
      const uint32_t expert = best & (kMostGuessed - 1u);
      if (lane() != 0) continue;
      block_.guess[k] = static_cast<int>(expert);
      block_.guessed_place[expert] = static_cast<uint8_t>(k);
    }
    if (lane() == 0) barrier_arrive(shared_address(&block_.guessed));
  }

  const PersistentStep& step_;
  const Plan& plan_;
  Block& block_;
  uint32_t rows_;  // in shared memory
};

/// The warp that makes the picks: where this lane's pick goes, if it has one. Whose expert was guessed takes the place of the guess, the
/// others those that are left, in the order of lanes.
__device__ __forceinline__ int settle(bool has_pick, int expert, int top_k, int lane,
                                      Block& block) {
  const uint32_t all = (1u << top_k) - 1;
  const int guessed = has_pick ? block.guessed_place[expert] : kNoPlace;
  const bool known = guessed != kNoPlace;
  const uint32_t taken = __reduce_or_sync(kAllLanes, known ? 1u << guessed : 0u);
  uint32_t left = all & ~taken;
  if (lane == 0) block.wrong_guesses = left;
  if (left == 0) return guessed;
  const uint32_t fresh = __ballot_sync(kAllLanes, has_pick && !known);
  for (int n = __popc(fresh & ((1u << lane) - 1)); n > 0; --n) left &= left - 1;
  return known ? guessed : __ffs(static_cast<int>(left)) - 1;
}

}  // namespace switchyard::cuda::persistent
