// SPDX-License-Identifier: Apache-2.0
// The warp of the single-launch layer (moe_small_sm90a.cu) that streams the weights. What it does between two stages is what memory waits for
// whenever several are free at once, so it is kept short: a stage is one copy, and nothing is divided.
#pragma once
#include "kernels/cuda/moe_small_claim.cuh"
#include "kernels/cuda/packed_boxes.cuh"

namespace switchyard::cuda::small_layer {

// A strip of weights: its first block, or the first pair of blocks of which it has half.
struct Strip {
  const char* first;
  int half;
};

// kPlaced: the weights are placed by sides of the L2 (ops/moe_pack.h).
template <bool kPlaced, int kStages, class Shared = small_layer::Shared>
struct Producer {
  static constexpr int kStepBytes = kPlaced ? MoePack::kPairBytes : MoePack::kBlockBytes;

  Shared& s;
  const Shape& shape;
  uint32_t ring;
  const PackedBoxes& boxes;  // of placed weights
  RingCursor<kStages> places[kGroups] = {};

  // Strip `at` among those of its list in an expert's matrix of so many strips and blocks in each.
  __device__ static Strip strip(const void* matrix, int expert, int at, int half, int strips,
                                int blocks) {
    const int64_t row = int64_t{expert} * (kPlaced ? strips / 2 : strips) + at;
    return {static_cast<const char*>(matrix) + row * blocks * kStepBytes, half};
  }

  // Copies so many blocks of a strip, which begin at `from`, into the group's next stage, once that is free.
  __device__ __forceinline__ void copy(int group, const char* from, int half, int blocks) {
    uint32_t stage = 0, parity = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {  // an index that is known keeps the places in registers
      if (i != group) continue;
      stage = i * kStages + places[i].slot;
      parity = places[i].parity;
      places[i].advance();
    }
    const uint32_t full = shared_address(&s.full[stage]), to = ring + stage * kStageBytes;
    const uint32_t empty = shared_address(&s.empty[stage]);
    if constexpr (kPlaced) {
      const auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from));
      const bool whole = blocks == kStageBlocks && low % (2 * PackedBoxes::kUnitBytes) == 0;
      const CUtensorMap& four = boxes.four[first_block(from, half)];
      const uint32_t unit = unit_of(from);
      barrier_wait(empty, parity ^ 1);
      if (!whole || !boxes.usable) return copy_apart(to, from, half, blocks, full);
      if (lane_id() != 0) return;
      barrier_arrive_expect(full, kStageBytes);
      box_copy(to, four, unit, full, evict_first());
    } else {
      barrier_wait(empty, parity ^ 1);
      if (lane_id() != 0) return;
      barrier_arrive_expect(full, blocks * MoePack::kBlockBytes);
      bulk_copy_once(to, from, blocks * MoePack::kBlockBytes, full);
    }
  }

  // `first_stages_copied()` is called once the item's first stages are on their way.
  template <class Then>
  __device__ void up_item(const Work& work, const Strip& strip, const Then& first_stages_copied) {
    const char* from = strip.first;
    for (int c = 0, left = shape.up_blocks; c < work.item_stages; ++c, left -= kStageBlocks) {
      copy(c % kGroups, from, strip.half, min(kStageBlocks, left));
      from += kStageBlocks * kStepBytes;
      if (c == min(kGroups, work.item_stages) - 1) first_stages_copied();
    }
  }
  __device__ void down_hit(const Piece& piece, int hit, const Strip& strip) {
    const char* from = strip.first + int64_t{piece.begin} * kStepBytes;
    for (int c = 0, left = piece.blocks; c < piece.stages; ++c, left -= kStageBlocks) {
      copy((piece.split ? c : hit) % kGroups, from, strip.half, min(kStageBlocks, left));
      from += kStageBlocks * kStepBytes;
    }
  }

 private:
  // Which block of this pair is the strip's.
  __device__ uint32_t first_block(const char* pair, int half) const {
    const auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pair));
    return (half ^ __popc(low & shape.side_mask)) & 1;
  }
  __device__ uint32_t unit_of(const char* pair) const {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(pair) - boxes.base) /
                                 PackedBoxes::kUnitBytes);
  }
  // What is no box of four, by boxes of two or by blocks, a lane each.
  __device__ void copy_apart(uint32_t to, const char* pair, int half, int blocks, uint32_t full) {
    if (lane_id() == 0) barrier_arrive_expect(full, blocks * MoePack::kBlockBytes);
    __syncwarp();
    const auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pair));
    const bool two = boxes.usable && blocks % 2 == 0 && low % PackedBoxes::kUnitBytes == 0;
    const int at = lane_id() * (two ? 2 : 1);
    if (at >= blocks) return;
    pair += at * MoePack::kPairBytes;
    to += at * MoePack::kBlockBytes;
    const uint32_t first = first_block(pair, half);
    if (two) return box_copy(to, boxes.two[first], unit_of(pair), full, evict_first());
    bulk_copy_once(to, pair + first * MoePack::kBlockBytes, MoePack::kBlockBytes, full);
  }
};

// Divides whole numbers below 2^21: a half is far from the next whole quotient, so rounding does not reach it.
class Divisor {
 public:
  __device__ explicit Divisor(int by) : inverse_(1.0f / static_cast<float>(by)) {}
  __device__ int operator()(int number) const {
    return __float2int_rd((static_cast<float>(number) + 0.5f) * inverse_);
  }

 private:
  float inverse_;
};

/// Experts of hits that are known.
struct KnownPicks {
  const uint8_t* hit_expert;
  __device__ int operator()(int hit) const { return hit_expert[hit]; }
  __device__ void settle() const {}
};

/// Every weight of the claimed work. expert_of.settle() is called when there is time.
template <bool kPlaced, int kStages, class Shared, class ExpertOf>
__device__ void produce_claimed(Producer<kPlaced, kStages, Shared>& producer, Queue& queue,
                                const Work& work, const MoeFfn::Args& args, int hits,
                                ExpertOf& expert_of) {
  using Producer = Producer<kPlaced, kStages, Shared>;
  const Shape& shape = producer.shape;
  const int rows = shape.up_blocks * 2, in_row = Piece::pieces_in_row(shape);
  Claims<kPlaced> claims(queue, args.sync, work.items, hits > 0 ? rows * in_row : 0);
  const int in_hit = kPlaced ? work.tiles / 2 : work.tiles;
  const Divisor hits_of(in_hit), rows_of(in_row);
  bool any = claims.first();
  for (; any && claims.is_item(); any = claims.next()) {
    const int hit = hits_of(claims.number()), at = claims.number() - hit * in_hit;
    claims.leave(hit * work.tiles + claims.strip(at, work.tiles));
    producer.up_item(
        work,
        Producer::strip(args.w13, expert_of(hit), at, claims.half(), work.tiles, shape.up_blocks),
        [&] { expert_of.settle(); });
  }
  claims.leave(-1);
  expert_of.settle();
  for (; any; any = claims.next()) {
    const int at = rows_of(claims.number()), part = claims.number() - at * in_row;
    const int row = claims.strip(at, rows);
    claims.leave(row * in_row + part);
    const Piece piece = Piece::part_of(shape, row, part);
    for (int hit = 0; hit < hits; ++hit) {
      producer.down_hit(
          piece, hit,
          Producer::strip(args.w2, expert_of(hit), at, claims.half(), rows, shape.down_blocks));
    }
  }
  claims.leave(-1);
}

}  // namespace switchyard::cuda::small_layer
