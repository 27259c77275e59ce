// SPDX-License-Identifier: Apache-2.0
// Dense products of some hundred tokens on Hopper: which tile, and what becomes of its sums.
#include "kernels/cuda/dense_tile.h"
#include "kernels/cuda/dense_tile_full_sm90a.cuh"
#include "kernels/cuda/dense_tile_heads_sm90a.cuh"

namespace switchyard::cuda {
namespace {

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
      if (threadIdx.x == TileT::kThreads - 1 && a.next != nullptr) {
        ask_for_share(a.next, a.next_bytes, blockIdx.x, gridDim.x);
      }
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
  static const int most =
      clusters_at_once(dense_tile_kernel<TileT, OutT>, TileT::kCluster, TileT::kThreads,
                       static_cast<int>(sizeof(DenseTileShared<TileT>))) *
      TileT::kCluster;
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

// Every row has a tile of its own kind in one wave, or tiles would wait for ever.
bool full_heads(const Dense& args, const PrepareHeads& heads, StreamHandle stream) {
  using TileT = FullHeadsTile;
  const bool fits = heads.words != nullptr && heads.clip == 0 &&
                    args.tokens % (2 * TileT::kRows) == 0 && args.tokens <= FullHeadWords::kRows &&
                    (heads.heads + 2 * heads.kv_heads) % TileT::kHeads == 0 &&
                    HeadKind(heads, 0).num_tiles <= FullHeadWords::kTiles &&
                    HeadKind(heads, 1).num_tiles <= FullHeadWords::kTiles;
  return fits && launch<TileT, FullHeadsOut>(args, heads, stream);
}

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
                    heads.dtype == DType::bf16 && is_rounded(args);
  if (!fits) return false;
  if (heads.norm == QkNormKind::full_width) return full_heads(args, heads, stream);
  if (args.tokens < kLeast) return false;
  using Low = DenseTile<2, kHead, 4, 1, 6>;
  using High = DenseTile<3, kHead, 4, 1, 5>;
  return launch<Low, HeadsOut<Low>>(args, heads, stream) ||
         launch<High, HeadsOut<High>>(args, heads, stream);
}

}  // namespace switchyard::cuda
