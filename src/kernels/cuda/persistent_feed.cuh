// SPDX-License-Identifier: Apache-2.0
// The thread that streams every weight of the persistent step (step_persistent_sm90a.cu), in the order of its use, into the rings of
// moe_small.cuh. It has 32 registers: the others have what is left.
#pragma once
#include "kernels/cuda/persistent_place.cuh"

namespace switchyard::cuda::persistent {

// Copies of 16 KiB on their way to a multiprocessor: what others read comes behind them. While a phase runs, the weights of the next are
// on their way: those of the output product beside attention, which reads most.
inline constexpr int kQkvCopies = 3, kOutputCopies = 2, kUpCopies = 4, kDownCopies = 3;
inline constexpr int kGuessCopies = 2;

class Feed {
 public:
  __device__ Feed(OneToken& shared, const PersistentStep& step, const Plan& plan,
                  const PackedBoxes& boxes, uint32_t ring)
      : s_(shared), step_(step), plan_(plan), boxes_(boxes), ring_(ring) {}

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
    for (int item = block.rank; left > 0 && item < work.items;
         item += static_cast<int>(gridDim.x)) {
      const int stages = take_guessed(work, left);
      send(work, item, block.guess[item / work.tiles], 0, stages, kGuessCopies, w13);
    }
  }

  /// `left`: stages that guess() has sent. From the first wrong one on they are of no use: what comes in their place is behind them.
  __device__ __forceinline__ void up(const Block& block, int left, const char* w13) {
    const Work& work = block.work;
#pragma unroll 1
    for (int item = block.rank; item < work.items; item += static_cast<int>(gridDim.x)) {
      int sent = take_guessed(work, left);
      if (sent > 0 && guessed_wrong(block, item)) sent = left = 0;
      send(work, item, s_.hit_expert[item / work.tiles], sent, work.item_stages, kUpCopies, w13);
    }
  }

  // A piece's blocks of all picks, one behind the other.
  __device__ __forceinline__ void down(const Block& block, const char* w2) {
    const Work& work = block.work;
    const Shape& shape = plan_.shape;
#pragma unroll 1
    for (int at = work.down_begin; at < work.down_end;) {
      const int row = at / shape.down_blocks, begin = at - row * shape.down_blocks;
      const int blocks = min(shape.down_blocks - begin, work.down_end - at);
      const PackedPlace first =
          first_of_row(shape, w2, strip_of_row(plan_, block, row)).behind(shape, begin);
      int pick = 0, step = 0;
      Filled stage{0, 0, 0};
#pragma unroll 1
      while (pick < shape.rule.top_k) {
        const PackedPlace place = first.of_expert(shape, s_.hit_expert[pick]).behind(shape, step);
        const int left = (shape.rule.top_k - pick) * blocks - step;
        step += put(stage, place, blocks - step, left, kDownCopies);
        if (step == blocks) {
          step = 0;
          ++pick;
        }
      }
      at += blocks;
    }
  }

 private:
  // The stage that is being filled: blocks that are in it, 0 before it is taken; and the group whose turn is next.
  struct Filled {
    int blocks, group;
    uint32_t stage;
  };

  // Stages of an item of the up product, of this expert.
  __device__ __forceinline__ void send(const Work& work, int item, int expert, int begin, int end,
                                       int most, const char* w13) {
    const int blocks = plan_.shape.up_blocks;
    PackedPlace place = first_of_item(plan_.shape, w13, expert * work.tiles + item % work.tiles)
                            .behind(plan_.shape, begin * kStageBlocks);
    int left = min(blocks, end * kStageBlocks) - begin * kStageBlocks;
    Filled stage{0, begin % kGroups, 0};
#pragma unroll 1
    while (left > 0) {
      const int sent = put(stage, place, left, left, most);
      left -= sent;
      place = place.behind(plan_.shape, sent);
    }
  }

  // Sends the next blocks of a strip, `run` at most, as one copy, where `left` go to this stage and the next ones. Returns how many.
  __device__ __forceinline__ int put(Filled& filled, const PackedPlace& place, int run, int left,
                                     int most) {
    const uint32_t mask = plan_.shape.side_mask;
    const int room = min(run, kStageBlocks - filled.blocks);
    const int sent = mask == 0 ? room : place.run(boxes_, room);
    if (filled.blocks == 0) {
      filled.stage = take(filled.group, min(left, kStageBlocks) * MoePack::kBlockBytes, most);
      filled.group = (filled.group + 1) % kGroups;
    }
    const uint32_t side = place.side(mask);
    const uint32_t to = ring_ + filled.stage * kStageBytes + filled.blocks * MoePack::kBlockBytes;
    const uint32_t full = shared_address(&s_.full[filled.stage]);
    if (mask == 0 || sent == 1) {
      const char* from = place.address(step_.weights, mask, side);
      bulk_copy_once(to, from, sent * MoePack::kBlockBytes, full);
    } else {
      box_copy(to, (sent == 2 ? boxes_.two : boxes_.four)[side], place.unit(boxes_), full,
               evict_first());
    }
    filled.blocks = (filled.blocks + sent) % kStageBlocks;
    return sent;
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

  // Whether one of the bytes is of this stage: it was used again since, so the copy before has landed, and its phase may be two back.
  static __device__ __forceinline__ bool holds(uint32_t bytes, uint32_t stage) {
    const uint32_t differ = (bytes ^ stage * 0x01010101u) & 0x0f0f0f0fu;
    return ((differ - 0x01010101u) & ~differ & 0x80808080u) != 0;
  }

  static constexpr uint32_t kNone = 0xff;
  static_assert(kGroups * 8 <= 32 && kGroups * kStages <= 15);

  OneToken& s_;
  const PersistentStep& step_;
  const Plan& plan_;
  const PackedBoxes& boxes_;
  uint32_t ring_;
  uint32_t cursors_ = 0;  // a byte a group
  uint32_t recent_ =
      0xffffffffu;  // a byte for each of the last four copies: stage, and 16 times the parity
};

}  // namespace switchyard::cuda::persistent
