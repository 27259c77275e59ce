// SPDX-License-Identifier: Apache-2.0
// A dense product of some hundred tokens on Hopper, one tile a block, up to where the sums are complete: y = x W^T with sums [64, n] in
// the registers of each group of four warps. What becomes of them is the including kernel's.
//
//   tile     kRows tokens x kColumns outputs, 64 inputs a step; a ring of stages [kRows][64] x, [kColumns][64] W, both swizzled
//   cluster  kShareX blocks have the same tokens and kShareW the same outputs: each loads a part of what they share and sends it to all
//            of them, so the L2 is read less
//   full     1 arrival and the bytes of all parts
//   empty    4 warps of each consumer of each block that this one sends to
//   chained  the first stages' weights are asked for before the launch before has ended (chain.cuh)
// Floor: 2 T n k operations. Source: PTX ISA 9.0, "cp.async.bulk.tensor", "mbarrier.arrive", "barrier.cluster".
#pragma once
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace switchyard::cuda {

inline constexpr int kTileInputs = 64;  ///< of a step
inline constexpr int kTileRowBytes = kTileInputs * 2;

template <int kConsumers_, int kColumns_, int kShareX_, int kShareW_, int kStages_>
struct DenseTile {
  static constexpr int kConsumers = kConsumers_, kColumns = kColumns_, kShareX = kShareX_,
                       kShareW = kShareW_, kStages = kStages_;
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = (kConsumers + 1) * 128;
  static constexpr int kCluster = kShareX * kShareW;
  static constexpr int kPeers =
      kShareX + kShareW - 1;  ///< blocks that send to this one, itself too
  static constexpr int kXRows = kRows / kShareX, kWRows = kColumns / kShareW;  ///< that it loads
  static constexpr int kXBytes = kRows * kTileRowBytes, kWBytes = kColumns * kTileRowBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  static constexpr int kRegisters = kConsumers == 3 ? 160 : 232;  ///< of 65536 for all threads
  static constexpr int kLoaderRegisters = kConsumers == 3 ? 32 : 40;
  static constexpr int kBoxRows = kWRows;  ///< outputs that lie side by side in memory
  /// Row of W at which the i-th box of the tile from `column` on begins.
  static __device__ __forceinline__ int box_row(int column, int i) { return column + i * kBoxRows; }
  static_assert(kXRows % 8 == 0 && kWRows % 8 == 0, "parts are whole groups of the swizzle");
  static_assert(kXRows <= 256 && kWRows <= 256, "a box has at most 256 rows");
};

template <class TileT>
struct DenseTileShared {
  alignas(1024) uint8_t stage[TileT::kStages][TileT::kStageBytes];
  alignas(8) uint64_t full[TileT::kStages], empty[TileT::kStages];
  float weight[TileT::kColumns];  ///< of heads' norms
};

struct DenseTileMaps {
  CUtensorMap x, w;
};

/// Without a scope, which would make it a fence of the whole device: what was read is in registers or done with.
__device__ __forceinline__ void barrier_arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// A box at (row, input) to the same place of all blocks in `blocks`, whose barriers there count its bytes.
__device__ __forceinline__ void tensor_copy_to_all(uint32_t to, const CUtensorMap& map, int input,
                                                   int row, uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(input), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}

/// Where a block stands in its cluster, and its tile. Clusters go along the outputs first.
template <class TileT>
struct DensePlace {
  int x_part, w_part;  ///< of those that share its tokens, its outputs
  int row, column;     ///< first of the tile
  int steps;
  __device__ __forceinline__ DensePlace(int64_t n, int64_t k) {
    const int rank = static_cast<int>(blockIdx.x) % TileT::kCluster;
    const int cluster = static_cast<int>(blockIdx.x) / TileT::kCluster;
    x_part = rank % TileT::kShareX;
    w_part = rank / TileT::kShareX;
    const int across = static_cast<int>(n) / (TileT::kColumns * TileT::kShareX);
    column = (cluster % across * TileT::kShareX + x_part) * TileT::kColumns;
    row = (cluster / across * TileT::kShareW + w_part) * TileT::kRows;
    steps = static_cast<int>(k) / kTileInputs;
  }
  /// Rank of the block that has these parts.
  static __device__ __forceinline__ int rank_of(int x, int w) { return w * TileT::kShareX + x; }
  /// Rank of the i-th of kPeers.
  __device__ __forceinline__ int peer(int i) const {
    if (i < TileT::kShareX) return rank_of(i, w_part);
    const int other = i - TileT::kShareX;
    return rank_of(x_part, other + (other >= w_part ? 1 : 0));
  }
};

template <class TileT>
__device__ __forceinline__ void init_dense_barriers(DenseTileShared<TileT>& shared) {
  for (int i = 0; i < TileT::kStages; ++i) {
    barrier_init(shared_address(&shared.full[i]), 1);
    barrier_init(shared_address(&shared.empty[i]), 4 * TileT::kConsumers * TileT::kPeers);
  }
  barrier_init_done();
  cluster_barriers_init_done();
}

template <class TileT>
__device__ __forceinline__ void set_up_dense_tile(DenseTileShared<TileT>& shared,
                                                  const DenseTileMaps& maps) {
  if (threadIdx.x == 0) {
    tensor_prefetch(maps.x);
    tensor_prefetch(maps.w);
    init_dense_barriers(shared);
  }
  __syncthreads();
  cluster_arrive();
  let_next_begin();
  cluster_wait();
}

/// One thread: this block's parts of all steps.
template <class TileT>
class DenseLoader {
 public:
  __device__ __forceinline__ DenseLoader(DenseTileShared<TileT>& shared, const DenseTileMaps& maps,
                                         const DensePlace<TileT>& at)
      : shared_(shared), maps_(maps), at_(at) {
    uint32_t same_tokens = 0, same_outputs = 0;
    for (int i = 0; i < TileT::kShareX; ++i) same_tokens |= 1u << at.rank_of(i, at.w_part);
    for (int i = 0; i < TileT::kShareW; ++i) same_outputs |= 1u << at.rank_of(at.x_part, i);
    same_tokens_ = static_cast<uint16_t>(same_tokens);
    same_outputs_ = static_cast<uint16_t>(same_outputs);
  }
  __device__ __forceinline__ void run() {
    const int early = min(TileT::kStages, at_.steps);
    for (int i = 0; i < early; ++i) {
      barrier_arrive_expect(full(i), TileT::kStageBytes);
      send_w(i, i);
    }
    wait_for_previous();
    for (int i = 0; i < early; ++i) send_x(i, i);
    RingCursor<TileT::kStages> ring;
#pragma unroll 1
    for (int i = early; i < at_.steps; ++i, ring.advance()) {
      barrier_wait(shared_address(&shared_.empty[ring.slot]), ring.parity);
      barrier_arrive_expect(full(ring.slot), TileT::kStageBytes);
      send_w(ring.slot, i);
      send_x(ring.slot, i);
    }
  }

 private:
  __device__ __forceinline__ uint32_t full(int slot) const {
    return shared_address(&shared_.full[slot]);
  }
  __device__ __forceinline__ int input(int step) const { return step * kTileInputs; }
  __device__ __forceinline__ void send_x(int slot, int step) const {
    const int part = at_.x_part * TileT::kXRows;
    tensor_copy_to_all(shared_address(shared_.stage[slot]) + part * kTileRowBytes, maps_.x,
                       input(step), at_.row + part, full(slot), same_tokens_);
  }
  __device__ __forceinline__ void send_w(int slot, int step) const {
    constexpr int kBoxes = TileT::kWRows / TileT::kBoxRows;
    const uint32_t to = shared_address(shared_.stage[slot]) + TileT::kXBytes;
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int box = at_.w_part * kBoxes + i;
      tensor_copy_to_all(to + box * (TileT::kBoxRows * kTileRowBytes), maps_.w, input(step),
                         TileT::box_row(at_.column, box), full(slot), same_outputs_);
    }
  }

  DenseTileShared<TileT>& shared_;
  const DenseTileMaps& maps_;
  const DensePlace<TileT>& at_;
  uint16_t same_tokens_, same_outputs_;
};

/// Keeps the compiler from moving accesses of sums over a wait.
template <int kCount>
__device__ __forceinline__ void hold_sums(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// A group of four warps: the sums of its 64 tokens over the steps of this block. Shortly before the last ones it calls `ask`, for what
/// the sums are to meet.
template <class TileT, class Ask>
__device__ __forceinline__ void sum_products(float (&sum)[TileT::kColumns / 2],
                                             DenseTileShared<TileT>& shared,
                                             const DensePlace<TileT>& place, int group,
                                             const Ask& ask) {
  constexpr int kLast = 2;  // steps
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t peer_empty =
      address_in_block(shared_address(&shared.empty[0]), place.peer(lane % TileT::kPeers));
#pragma unroll
  for (float& value : sum) value = 0;
  RingCursor<TileT::kStages> ring;
  int before = 0;
  const auto run = [&](int begin, int end) {
#pragma unroll 1
    for (int step = begin; step < end; ++step) {
      barrier_wait(shared_address(&shared.full[ring.slot]), ring.parity);
      const uint32_t stage = shared_address(shared.stage[ring.slot]);
      const uint64_t x = wgmma_operand(stage + group * (64 * kTileRowBytes));
      const uint64_t w = wgmma_operand(stage + TileT::kXBytes);
      wgmma_begin();
#pragma unroll
      for (int i = 0; i < kTileInputs / 16; ++i) {
        Wgmma<TileT::kColumns>::multiply_add(sum, x + 2 * i, w + 2 * i);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (step > 0 && lane < TileT::kPeers) {
        barrier_arrive_in_cluster(peer_empty + before * static_cast<int>(sizeof(uint64_t)));
      }
      before = ring.slot;
      ring.advance();
    }
  };
  run(0, place.steps - kLast);
  ask();
  run(max(place.steps - kLast, 0), place.steps);
  wgmma_wait<0>();
  hold_sums(sum);
}

/// Describes rows of k inputs, in boxes of box_rows. False when the driver refuses.
inline bool make_rows_map(CUtensorMap& map, const void* from, int64_t rows, int64_t k,
                          unsigned box_rows) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>(k) * 2};
  const cuuint32_t box[2] = {kTileInputs, box_rows}, step[2] = {1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(from), size, stride,
                box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class TileT>
bool make_dense_tile_maps(DenseTileMaps& maps, const Dense& args) {
  return make_rows_map(maps.x, args.x, args.tokens, args.k, TileT::kXRows) &&
         make_rows_map(maps.w, args.weight, args.n, args.k, TileT::kBoxRows);
}

template <class TileT>
int64_t dense_tile_blocks(const Dense& args) {
  const int64_t rows = grid_of(args.tokens, TileT::kRows * TileT::kShareW);
  return rows * (args.n / (TileT::kColumns * TileT::kShareX)) * TileT::kCluster;
}

}  // namespace switchyard::cuda
