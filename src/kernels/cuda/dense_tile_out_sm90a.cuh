// SPDX-License-Identifier: Apache-2.0
// What becomes of a tile's sums (dense_tile_sm90a.cuh): added to y, or rounded to bf16, when a warp's 16 rows leave through shared memory, a
// bulk store a row.
#pragma once
#include "kernels/cuda/dense_tile_sm90a.cuh"

namespace switchyard::cuda {

// Four 8 x 8 matrices of bf16 to shared memory; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// The first of this warp's 16 rows.
template <class TileT>
__device__ __forceinline__ int warp_row(const DensePlace<TileT>& place) {
  return place.row + static_cast<int>(threadIdx.x) / kWarp * 16;
}

// One warp: its 16 rows of sums, rounded, to shared memory.
template <class TileT>
__device__ __forceinline__ void store_warp_rows(const float (&sum)[TileT::kColumns / 2],
                                                uint32_t rows, int row_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t matrix = rows + lane % 16 * row_bytes + lane / 16 * 16;
#pragma unroll
  for (int j = 0; j < TileT::kColumns / 8; j += 2) {
    const float* v = sum + 4 * j;
    store_matrices(matrix + j * 16, pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                   pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
}

// The same and on to memory; lane i < 16 says where row i goes, or null.
template <class TileT>
__device__ __forceinline__ void store_rows(const float (&sum)[TileT::kColumns / 2],
                                           DenseTileShared<TileT>& shared, bf16* to) {
  constexpr int kRowBytes = TileT::kColumns * 2 + 16;  // a stride free of bank conflicts
  static_assert(TileT::kRows * kRowBytes <= TileT::kStages * TileT::kStageBytes);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t rows =
      shared_address(shared.stage[0]) + static_cast<int>(threadIdx.x) / kWarp * (16 * kRowBytes);
  store_warp_rows<TileT>(sum, rows, kRowBytes);
  fence_async_shared();
  __syncwarp();
  if (lane >= 16 || to == nullptr) return;
  bulk_store(to, rows + lane * kRowBytes, TileT::kColumns * 2);
  bulk_store_commit();
  bulk_store_wait();
}

// Sums added to rows of y, which are read shortly before. A thread has two rows, and of each two outputs in 8.
template <class TileT>
struct AddedOut {
  static constexpr int kPairs = TileT::kColumns / 8;
  struct Args {};
  float2 before[2][kPairs];
  float* to[2];  // null: no such row
  float alpha;
  __device__ __forceinline__ AddedOut(const Dense& a, const Args&, DenseTileShared<TileT>&,
                                      const DensePlace<TileT>& place)
      : alpha(a.alpha) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, row = warp_row(place) + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t t = row + 8 * r;
      to[r] = t < a.tokens ? a.y + t * a.n + place.column + lane % 4 * 2 : nullptr;
    }
  }
  __device__ __forceinline__ void ask(const Args&) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (to[r] == nullptr) continue;
#pragma unroll
      for (int j = 0; j < kPairs; ++j)
        before[r][j] = *reinterpret_cast<const float2*>(to[r] + j * 8);
    }
  }
  __device__ __forceinline__ void store(const float (&sum)[TileT::kColumns / 2], const Args&,
                                        DenseTileShared<TileT>&) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (to[r] == nullptr) continue;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const float* v = sum + 4 * j + 2 * r;
        *reinterpret_cast<float2*>(to[r] + j * 8) =
            make_float2(before[r][j].x + alpha * v[0], before[r][j].y + alpha * v[1]);
      }
    }
  }
};

// Sums to rows of y.
template <class TileT>
struct RoundedOut {
  struct Args {};
  bf16* to = nullptr;
  __device__ __forceinline__ RoundedOut(const Dense& a, const Args&, DenseTileShared<TileT>&,
                                        const DensePlace<TileT>& place) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, row = warp_row(place) + lane;
    if (lane < 16 && row < a.tokens) to = static_cast<bf16*>(a.y_bf16) + row * a.n + place.column;
  }
  __device__ __forceinline__ void ask(const Args&) {}
  __device__ __forceinline__ void store(const float (&sum)[TileT::kColumns / 2], const Args&,
                                        DenseTileShared<TileT>& shared) const {
    store_rows<TileT>(sum, shared, to);
  }
};

}  // namespace switchyard::cuda
