// SPDX-License-Identifier: Apache-2.0
// Dense products of some hundred tokens on Hopper (dense_tile_sm90a.cuh): sums added to y; or rounded to bf16, to y or on through the
// heads' norm, clip and turn to q and the caches, when a warp's 16 rows leave through shared memory, a bulk store a row.
// Source: as for the tile; Su et al. 2021, arXiv 2104.09864 (rope); Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm).
#include "kernels/cuda/dense_tile.h"
#include "kernels/cuda/dense_tile_sm90a.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kHead = 128;

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

// One warp: its 16 rows of sums, rounded; lane i < 16 says where row i goes, or null.
template <class TileT>
__device__ __forceinline__ void store_rows(const float (&sum)[TileT::kColumns / 2],
                                           DenseTileShared<TileT>& shared, bf16* to) {
  constexpr int kRowBytes = TileT::kColumns * 2 + 16;  // a stride free of bank conflicts
  static_assert(TileT::kRows * kRowBytes <= TileT::kStages * TileT::kStageBytes);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t rows =
      shared_address(shared.stage[0]) + static_cast<int>(threadIdx.x) / kWarp * (16 * kRowBytes);
  const uint32_t matrix = rows + lane % 16 * kRowBytes + lane / 16 * 16;
#pragma unroll
  for (int j = 0; j < TileT::kColumns / 8; j += 2) {
    const float* v = sum + 4 * j;
    store_matrices(matrix + j * 16, pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                   pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
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

// Cosines and sines of this lane's pairs in both of its rows; none for v.
struct RowTurns {
  float2 cos[2][8], sin[2][8];
  __device__ __forceinline__ void ask(const PrepareHeads& a, const int (&rope_row)[2]) {
    const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = int64_t{rope_row[r]} * (kHead / 2) + first;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        cos[r][j] = *reinterpret_cast<const float2*>(a.cos + at + 8 * j);
        sin[r][j] = *reinterpret_cast<const float2*>(a.sin + at + 8 * j);
      }
    }
  }
};

__device__ __forceinline__ float clipped(float v, float clip) {
  return clip > 0 ? fminf(fmaxf(v, -clip), clip) : v;
}

// Norm, clip and turn of row r. Of v only the clip.
__device__ __forceinline__ void finish_row(float (&sum)[kHead / 2], int r, const PrepareHeads& a,
                                           const float* weight, const RowTurns& turns, bool is_v) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  const bool normed = !is_v && a.norm != QkNormKind::none;
  float scale = 1;
  if (normed) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float* v = sum + 4 * j + 2 * r;
      squares += v[0] * v[0] + v[1] * v[1];
    }
    squares += __shfl_xor_sync(kAllLanes, squares, 1);
    squares += __shfl_xor_sync(kAllLanes, squares, 2);
    scale = rsqrtf(squares / kHead + a.eps);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    float2 wl = make_float2(1, 1), wh = wl;
    if (normed) {
      wl = *reinterpret_cast<const float2*>(weight + first + 8 * j);
      wh = *reinterpret_cast<const float2*>(weight + first + 8 * j + kHead / 2);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& low = sum[4 * j + 2 * r + i];
      float& high = sum[4 * (j + 8) + 2 * r + i];
      const float l = clipped(low * scale * (i == 0 ? wl.x : wl.y), a.clip);
      const float h = clipped(high * scale * (i == 0 ? wh.x : wh.y), a.clip);
      const float c = i == 0 ? turns.cos[r][j].x : turns.cos[r][j].y;
      const float s = i == 0 ? turns.sin[r][j].x : turns.sin[r][j].y;
      low = is_v ? l : l * c - h * s;
      high = is_v ? h : h * c + l * s;
    }
  }
}

__device__ __forceinline__ bf16* head_target(const PrepareHeads& a, int head, int t) {
  if (head < a.heads) return static_cast<bf16*>(a.q) + (int64_t{t} * a.heads + head) * kHead;
  const int64_t slot = a.slot[t], block = slot / a.block_tokens, offset = slot % a.block_tokens;
  const bool is_v = head >= a.heads + a.kv_heads;
  const int g = head - a.heads - (is_v ? a.kv_heads : 0);
  return static_cast<bf16*>(is_v ? a.v_cache : a.k_cache) +
         ((block * a.kv_heads + g) * a.block_tokens + offset) * kHead;
}

// Sums of a head, through norm, clip and turn to q or a cache.
template <class TileT>
struct HeadsOut {
  using Args = PrepareHeads;
  static_assert(TileT::kColumns == kHead);
  bool is_v;
  int rope_row[2];
  RowTurns turns;
  bf16* to = nullptr;
  __device__ __forceinline__ HeadsOut(const Dense&, const PrepareHeads& a,
                                      DenseTileShared<TileT>& shared,
                                      const DensePlace<TileT>& place) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, first = warp_row(place);
    const int head = place.column / kHead;
    is_v = head >= a.heads + a.kv_heads;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = min(first + lane / 4 + 8 * r, static_cast<int>(a.tokens) - 1);
      rope_row[r] = is_v ? 0 : a.rope_row[t];
    }
    if (lane < 16 && first + lane < a.tokens) to = head_target(a, head, first + lane);
    if (is_v || a.norm == QkNormKind::none || threadIdx.x >= kHead) return;
    shared.weight[threadIdx.x] = (head < a.heads ? a.q_norm : a.k_norm)[threadIdx.x];
  }
  __device__ __forceinline__ void ask(const PrepareHeads& a) { turns.ask(a, rope_row); }
  __device__ __forceinline__ void store(float (&sum)[kHead / 2], const PrepareHeads& a,
                                        DenseTileShared<TileT>& shared) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) finish_row(sum, r, a, shared.weight, turns, is_v);
    store_rows<TileT>(sum, shared, to);
  }
};

template <class TileT, class OutT>
__global__ void __cluster_dims__(TileT::kCluster, 1, 1) __launch_bounds__(TileT::kThreads, 1)
    dense_tile_kernel(const __grid_constant__ Dense a,
                      const __grid_constant__ typename OutT::Args extra,
                      const __grid_constant__ DenseTileMaps maps) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<DenseTileShared<TileT>*>(raw);
  set_up_dense_tile(shared, maps);
  const DensePlace<TileT> place(a.n, a.k);
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == TileT::kConsumers) {
    if constexpr (TileT::kConsumers > 1) give_registers<TileT::kLoaderRegisters>();
    if (threadIdx.x == TileT::kConsumers * 128) {
      DenseLoader<TileT>(shared, maps, place).run();
    } else {
      wait_for_previous();
    }
  } else {
    if constexpr (TileT::kConsumers > 1) take_registers<TileT::kRegisters>();
    wait_for_previous();
    OutT out(a, extra, shared, place);
    float sum[TileT::kColumns / 2];
    sum_products<TileT>(sum, shared, place, group, [&] { out.ask(extra); });
    fixed_barrier<1, TileT::kConsumers * 128>();  // all have read the stages
    out.store(sum, extra, shared);
  }
  // Others may still arrive at this block's barriers.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
}

// Blocks in one wave: the clusters that the device holds at once.
template <class TileT, class OutT>
int most_blocks() {
  static const int most = [] {
    constexpr int kBytes = static_cast<int>(sizeof(DenseTileShared<TileT>));
    const auto kernel = dense_tile_kernel<TileT, OutT>;
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {TileT::kCluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(TileT::kCluster);
    config.blockDim = dim3(TileT::kThreads);
    config.dynamicSmemBytes = kBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            kBytes) == cudaSuccess &&
                       cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
    if (!known) (void)cudaGetLastError();  // or the next launch would be blamed
    return known ? clusters * TileT::kCluster : 0;
  }();
  return most;
}

// False where the tiles do not divide the outputs, need a second wave, or leave much of the first one idle: the library has better tiles then.
template <class TileT, class OutT>
bool launch(const Dense& args, const typename OutT::Args& extra, StreamHandle stream) {
  const bool divides =
      args.n % (TileT::kColumns * TileT::kShareX) == 0 && args.k % kTileInputs == 0;
  const int64_t blocks = dense_tile_blocks<TileT>(args), most = most_blocks<TileT, OutT>();
  if (!divides || blocks > most || blocks * 8 < most * 7) return false;
  DenseTileMaps maps;
  if (!make_dense_tile_maps<TileT>(maps, args)) return false;
  launch_chained(dense_tile_kernel<TileT, OutT>,
                 dim3(static_cast<unsigned>(dense_tile_blocks<TileT>(args))), TileT::kThreads,
                 sizeof(DenseTileShared<TileT>), stream, args, extra, maps);
  return true;
}

bool is_plain(const Dense& args) {
  return is_sm90() && args.dtype == DType::bf16 && args.bias == nullptr;
}
bool is_rounded(const Dense& args) { return is_plain(args) && args.alpha == 1 && !args.accumulate; }

// bench/results/notes-gpu-step.md has what each of these was compared with.
constexpr int64_t kMostInputs =
    2048;  // beyond, the library's inner loop counts for more than its launch

}  // namespace

bool dense_tile_added(const Dense& args, StreamHandle stream) noexcept {
  using TileT = DenseTile<1, 128, 1, 2, 8>;
  if (!is_plain(args) || !args.accumulate || args.tokens % (2 * TileT::kRows) != 0 ||
      args.k > kMostInputs) {
    return false;
  }
  return launch<TileT, AddedOut<TileT>>(args, {}, stream);
}

bool dense_tile_rounded(const Dense& args, StreamHandle stream) noexcept {
  using TileT = DenseTile<2, 192, 1, 2, 5>;
  if (!is_rounded(args) || args.tokens % (2 * TileT::kRows) != 0) return false;
  return launch<TileT, RoundedOut<TileT>>(args, {}, stream);
}

bool dense_tile_heads(const Dense& args, const PrepareHeads& heads, StreamHandle stream) noexcept {
  constexpr int64_t kLeast = 257;
  const bool fits = heads.head_dim == kHead && heads.rotary_dim == kHead &&
                    heads.dtype == DType::bf16 && heads.norm != QkNormKind::full_width;
  if (!fits || !is_rounded(args) || args.tokens < kLeast) return false;
  using Low = DenseTile<2, kHead, 4, 1, 6>;
  using High = DenseTile<3, kHead, 4, 1, 5>;
  return launch<Low, HeadsOut<Low>>(args, heads, stream) ||
         launch<High, HeadsOut<High>>(args, heads, stream);
}

}  // namespace switchyard::cuda
