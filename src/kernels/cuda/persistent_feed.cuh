// SPDX-License-Identifier: Apache-2.0
// The thread that streams every weight of the persistent step (step_persistent_sm90a.cu), in the order of its use, into the rings of
// moe_small.cuh. It has 32 registers: the others have what is left.
#pragma once
#include "kernels/cuda/persistent_shared.cuh"

namespace switchyard::cuda::persistent {

// Copies of 16 KiB on their way to a multiprocessor: what others read comes behind them. While a phase runs, the weights of the next are
// on their way: those of the output product beside attention, which reads most.
inline constexpr int kQkvCopies = 3, kOutputCopies = 2, kUpCopies = 4, kDownCopies = 3;
inline constexpr int kGuessCopies = 2;

class Feed {
 public:
  __device__ Feed(OneToken& shared, const Shape& shape, uint32_t ring)
      : s_(shared), shape_(shape), ring_(ring) {}

  /// A matrix of whole rows; at most `most` copies are on their way.
  __device__ __forceinline__ void dense(const DenseCut& cut, const void* weight, int most) {
    const int blocks = static_cast<int>(gridDim.x), bytes = cut.steps * MoePack::kBlockBytes;
    const char* from = static_cast<const char*>(weight);
    int group = 0;
#pragma unroll 1
    for (int stage = static_cast<int>(blockIdx.x); stage < cut.stages; stage += blocks) {
      copy(take(group, bytes, most), 0, from + int64_t{stage} * bytes, bytes);
      group = (group + 1) % kGroups;
    }
  }

  /// The first `left` stages that up() would send, if the picks are as guessed.
  __device__ __forceinline__ void guess(const Block& block, int left, const char* w13) {
    const Work& work = block.work;
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); left > 0 && item < work.items;
         item += static_cast<int>(gridDim.x)) {
      const int stages = take_guessed(work, left);
      send(work, item, block.guess[item / work.tiles], 0, stages, kGuessCopies, w13);
    }
  }

  /// `left`: stages that guess() has sent. From the first wrong one on they are of no use: what comes in their place is behind them.
  __device__ __forceinline__ void up(const Block& block, int left, const char* w13) {
    const Work& work = block.work;
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < work.items;
         item += static_cast<int>(gridDim.x)) {
      int sent = take_guessed(work, left);
      if (sent > 0 && guessed_wrong(block, item)) sent = left = 0;
      send(work, item, s_.hit_expert[item / work.tiles], sent, work.item_stages, kUpCopies, w13);
    }
  }

  // A piece's blocks of all picks, one behind the other.
  __device__ __forceinline__ void down(const Work& work, const char* w2) {
#pragma unroll 1
    for (int at = work.down_begin; at < work.down_end;) {
      const Piece piece(shape_, work, at);
      int left = shape_.rule.top_k * piece.blocks, group = 0, k = 0, block = 0;
#pragma unroll 1
      for (; left > 0; left -= kStageBlocks) {
        const int count = min(left, kStageBlocks);
        const uint32_t stage = take(group, count * MoePack::kBlockBytes, kDownCopies);
        group = (group + 1) % kGroups;
#pragma unroll 1
        for (int done = 0; done < count;) {
          const int run = min(count - done, piece.blocks - block);
          const PackedStrip strip(w2, s_.hit_expert[k], piece.row_block,
                                  shape_.up_blocks * MoePack::kAtomInputs,
                                  shape_.down_blocks * MoePack::kAtomInputs, shape_.side_mask);
          copy(stage, done, strip, piece.begin + block, run);
          done += run;
          block += run;
          if (block == piece.blocks) {
            block = 0;
            ++k;
          }
        }
      }
      at += piece.blocks;
    }
  }

 private:
  // Stages of an item of the up product, of this expert.
  __device__ __forceinline__ void send(const Work& work, int item, int expert, int begin, int end,
                                       int most, const char* w13) {
    const PackedStrip strip(w13, expert, item % work.tiles, work.tiles * MoePack::kBlockRows,
                            shape_.up_blocks * MoePack::kAtomInputs, shape_.side_mask);
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      const int step = i * kStageBlocks, count = min(kStageBlocks, shape_.up_blocks - step);
      copy(take(i % kGroups, count * MoePack::kBlockBytes, most), 0, strip, step, count);
    }
  }

  // The group's next stage for so many bytes, once it is free and of the copies, at most 4, as few are on their way as said.
  __device__ __forceinline__ uint32_t take(int group, int bytes, int most) {
    const int shift = (most - 1) * 8;                        // to the one that must have landed
    const uint32_t cursor = cursors_ >> (group * 8) & 0xff;  // slot, and 16 times the parity
    const uint32_t slot = cursor & 15, parity = cursor >> 4, stage = group * kStages + slot;
    const uint32_t next = slot + 1 == kStages ? (parity ^ 1) << 4 : cursor + 1;
    cursors_ ^= (cursor ^ next) << (group * 8);
    const uint32_t oldest = recent_ >> shift & 0xff, newer = recent_ | 0xffffffffu << shift;
    recent_ = recent_ << 8 | parity << 4 | stage;
    if (oldest != kNone && !holds(newer, oldest & 15)) {
      barrier_wait(shared_address(&s_.full[oldest & 15]), oldest >> 4);
    }
    barrier_wait(shared_address(&s_.empty[stage]), parity ^ 1);
    barrier_arrive_expect(shared_address(&s_.full[stage]), bytes);
    return stage;
  }
  __device__ __forceinline__ void copy(uint32_t stage, int at, const char* from, int bytes) const {
    bulk_copy_once(ring_ + stage * kStageBytes + at, from, bytes, shared_address(&s_.full[stage]));
  }

  // Blocks of a strip from `step` on, to `at` and further in the stage, in units of blocks.
  __device__ __forceinline__ void copy(uint32_t stage, int at, const PackedStrip& strip, int step,
                                       int count) const {
    if (shape_.side_mask == 0) {
      copy(stage, at * MoePack::kBlockBytes, strip.step(step), count * MoePack::kBlockBytes);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      copy(stage, (at + i) * MoePack::kBlockBytes, strip.block(step + i), MoePack::kBlockBytes);
    }
  }

  // Whether one of the bytes is of this stage: it was used again since, so the copy before has landed, and its phase may be two back.
  static __device__ __forceinline__ bool holds(uint32_t bytes, uint32_t stage) {
    const uint32_t differ = (bytes ^ stage * 0x01010101u) & 0x0f0f0f0fu;
    return ((differ - 0x01010101u) & ~differ & 0x80808080u) != 0;
  }

  static constexpr uint32_t kNone = 0xff;
  static_assert(kGroups * 8 <= 32 && kGroups * kStages <= 15);

  OneToken& s_;
  const Shape& shape_;
  uint32_t ring_;
  uint32_t cursors_ = 0;  // a byte a group
  uint32_t recent_ =
      0xffffffffu;  // a byte for each of the last four copies: stage, and 16 times the parity
};

}  // namespace switchyard::cuda::persistent
