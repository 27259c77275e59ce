// SPDX-License-Identifier: Apache-2.0
// The experts for any number of rows, with instructions that sm_80 has: the fallback on newer devices, near the best
// on Ampere and Ada.
//
//   up    h [R, Fp] = glu(x[row_token] W13^T)        down    rows [R, D] = h W2^T        then launch_combine
// A tile is 128 packed weight rows by kTokens rows of one expert. Weights are the M operand of mma m16n8k16, so that few
// rows waste little (8 at a time) and gate and up of a hidden column meet in one thread. A persistent grid walks the
// tiles (expert, weight rows, tokens) in steps of 64 inputs; the loads of a block run ahead of its sums over the borders
// of tiles, through a ring of cp.async stages. Tokens are gathered in these loads.
//   cost  weights once from memory; x and h from L2 once per 128 weight rows
// Every sum runs over the inputs in ascending order in one accumulator, whatever kTokens: a token's bits depend neither
// on its batch nor on T.
#include "kernels/cuda/glu.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/primitives.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kTileRows = 128;                     // packed weight rows of a tile
constexpr int kStepInputs = MoePack::kAtomInputs;  // 64
constexpr int kWeightBytes = kTileRows * kStepInputs * 2;
constexpr int kMaxHits = MoeRoute::kMaxExperts;

// One of the two products.
struct Grouped {
  const bf16* x = nullptr;             // rows of x_stride values, of which `inputs` are real
  const int32_t* row_token = nullptr;  // null: row r is row r of x
  DeviceRouting routing;
  const char* weight = nullptr;
  int64_t expert_bytes = 0;
  uint32_t side_mask = 0;  // of L2Sides
  int64_t x_stride = 0, out_stride = 0;
  int inputs = 0, steps = 0;             // K, and its steps of 64
  int weight_rows = 0, out_columns = 0;  // packed rows; columns that are stored
  bf16* out = nullptr;
  RowBias bias;
  GluActivation activation = GluActivation::swiglu;
};

template <int kTokens_, int kWarpsM_, int kWarpsN_, int kStages_>
struct Shape {
  static constexpr int kTokens = kTokens_, kStages = kStages_;
  static constexpr int kWarpsM = kWarpsM_, kWarpsN = kWarpsN_;
  static constexpr int kThreads = kWarpsM * kWarpsN * 32;
  static constexpr int kTilesM = kTileRows / kWarpsM / 16;  // m16 of a warp
  static constexpr int kTilesN = kTokens / kWarpsN / 8;     // n8 of a warp
  static constexpr int kStageBytes = kWeightBytes + kTokens * kStepInputs * 2;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kWeightCopies = kWeightBytes / 16 / kThreads;  // of a thread
  static constexpr int kRowStride = kThreads / 8;  // token rows that are copied at once
  static constexpr int kRowCopies = (kTokens + kRowStride - 1) / kRowStride;
};

// A tile's place. Token tiles of one expert stand together, so that the blocks that run together share weights.
struct Tile {
  int expert = 0, first_row = 0, num_rows = 0;  // of the expert
  int row_tile = 0, token_tile = 0;
};

template <int kTokens>
__device__ __forceinline__ int token_tiles(int rows) {
  return (rows + kTokens - 1) / kTokens;
}

// first_tile[h] for h <= number of hits, by the first warp.
template <int kTokens>
__device__ void count_tiles(const Grouped& p, int* first_tile) {
  const int lane = static_cast<int>(threadIdx.x), hits = *p.routing.num_hit;
  const int row_tiles = (p.weight_rows + kTileRows - 1) / kTileRows;
  int before = 0;
  for (int h0 = 0; h0 < hits; h0 += 32) {
    int tiles = 0;
    if (h0 + lane < hits) {
      const int e = p.routing.hit[h0 + lane];
      tiles =
          row_tiles * token_tiles<kTokens>(p.routing.slot_offset[e + 1] - p.routing.slot_offset[e]);
    }
    int through = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, through, step);
      if (lane >= step) through += lower;
    }
    if (h0 + lane < hits) first_tile[h0 + lane] = before + through - tiles;
    before += __shfl_sync(kAllLanes, through, 31);
  }
  if (lane == 0) first_tile[hits] = before;
}

template <int kTokens>
__device__ __forceinline__ Tile find_tile(const Grouped& p, const int* first_tile, int index) {
  int hit = 0, end = *p.routing.num_hit;  // first_tile[hit] <= index < first_tile[end]
  while (end - hit > 1) {
    const int middle = (hit + end) / 2;
    (first_tile[middle] <= index ? hit : end) = middle;
  }
  Tile tile;
  tile.expert = p.routing.hit[hit];
  tile.first_row = p.routing.slot_offset[tile.expert];
  tile.num_rows = p.routing.slot_offset[tile.expert + 1] - tile.first_row;
  const int tiles = token_tiles<kTokens>(tile.num_rows), inside = index - first_tile[hit];
  tile.row_tile = inside / tiles;
  tile.token_tile = inside % tiles;
  return tile;
}

// What one thread copies: chunks of the tile's weight blocks, and a chunk of some token rows. Places are kept in units of
// 16 bytes and move on with each step, so that a copy costs few instructions besides itself.
template <class S>
struct Loader {
  static constexpr int kChunks = MoePack::kBlockBytes / 16;  // of a weight block
  static_assert(kChunks % S::kThreads == 0);

  uint32_t weight = 0;               // this step's first block
  int expert = 0, first_block = 0;   // of the tile
  int blocks = 0;                    // weight blocks of the tile that exist
  uint32_t row[S::kRowCopies] = {};  // this thread's chunk of each row
  uint32_t real = 0;                 // bit i: row i exists

  __device__ void aim(const Grouped& p, const Tile& at) {
    const int thread = static_cast<int>(threadIdx.x);
    expert = at.expert;
    first_block = at.row_tile * (kTileRows / MoePack::kBlockRows);
    blocks = p.weight_rows / MoePack::kBlockRows - first_block;
    const int64_t first_byte = at.expert * p.expert_bytes +
                               static_cast<int64_t>(first_block) * p.steps * MoePack::kBlockBytes;
    weight = static_cast<uint32_t>(first_byte / 16) + thread % kChunks;
    real = 0;
#pragma unroll
    for (int i = 0; i < S::kRowCopies; ++i) {
      const int inside = thread / 8 + i * S::kRowStride;
      const int local = at.token_tile * S::kTokens + inside;
      if (inside >= S::kTokens || local >= at.num_rows) continue;
      const int sorted = at.first_row + local;
      const int64_t from = p.row_token != nullptr ? p.row_token[sorted] : sorted;
      row[i] = static_cast<uint32_t>(from * p.x_stride / 8) + thread % 8;
      real |= 1u << i;
    }
  }

  // A block of weights that are placed by sides: only on Hopper, which has kernels of its own, so it need not be quick.
  __device__ const char* placed(const Grouped& p, int block, int step) const {
    return PackedStrip(p.weight, expert, first_block + block, p.weight_rows, p.steps * kStepInputs,
                       p.side_mask)
        .block(step);
  }

  __device__ void load(const Grouped& p, int step, uint32_t stage) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < S::kWeightCopies; ++i) {
      const int block = i * S::kThreads / kChunks, rest = i * S::kThreads % kChunks;
      if (block >= blocks) break;
      const uint32_t from = weight + block * p.steps * kChunks + rest;
      const char* at = p.weight + int64_t{from} * 16;
      if (p.side_mask != 0) at = placed(p, block, step) + (thread % kChunks + rest) * 16;
      copy_16(stage + (i * S::kThreads + thread) * 16, at, 16);
    }
    weight += kChunks;
    // The last step may reach beyond the width.
    const uint32_t here = (step * 8 + thread % 8) * 8 < p.inputs ? real : 0;
    const uint32_t to =
        stage + kWeightBytes + thread / 8 * 128 + (thread % 8 ^ thread / 8 % 8) * 16;
#pragma unroll
    for (int i = 0; i < S::kRowCopies; ++i) {
      if (S::kRowCopies * S::kRowStride != S::kTokens && thread / 8 >= S::kTokens) break;
      const bool copied = here >> i & 1;
      const auto* from = reinterpret_cast<const uint4*>(p.x) + (copied ? row[i] : 0);
      copy_16(to + i * S::kRowStride * 128, from, copied ? 16 : 0);
      row[i] += 8;
    }
  }
};

template <class S>
using Sums = float[S::kTilesM][S::kTilesN][4];

// The operands of 16 inputs in registers.
template <class S>
struct Fragments {
  uint32_t a[S::kTilesM][4];
  uint32_t b[S::kTilesN / 2][4];

  __device__ __forceinline__ void load(uint32_t a_base, uint32_t b_base, int k) {
    constexpr uint32_t kRows16 = 16 * 128;  // bytes of 16 rows
#pragma unroll
    for (int m = 0; m < S::kTilesM; ++m) load_matrices(a[m], (a_base ^ k << 5) + m * kRows16);
#pragma unroll
    for (int n = 0; n < S::kTilesN / 2; ++n) load_matrices(b[n], (b_base ^ k << 5) + n * kRows16);
  }
};

// Adds one step of 64 inputs; operands are read while the ones before are multiplied. Chunk c of row r stands at c ^ r, so
// 16 inputs further is an exclusive or away.
template <class S>
__device__ __forceinline__ void add_step(Sums<S>& sums, uint32_t stage, int warp_m, int warp_n) {
  constexpr int kParts = kStepInputs / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t a_row = warp_m * S::kTilesM * 16 + lane % 16;
  const uint32_t b_row = warp_n * S::kTilesN * 8 + lane / 16 * 8 + lane % 8;
  const uint32_t a_base = stage + a_row * 128 + ((lane / 16 ^ lane % 8) << 4);
  const uint32_t b_base = stage + kWeightBytes + b_row * 128 + ((lane / 8 % 2 ^ lane % 8) << 4);
  Fragments<S> part[2];
  part[0].load(a_base, b_base, 0);
#pragma unroll
  for (int k = 0; k < kParts; ++k) {
    if (k + 1 < kParts) part[(k + 1) % 2].load(a_base, b_base, k + 1);
    const Fragments<S>& now = part[k % 2];
#pragma unroll
    for (int n = 0; n < S::kTilesN; ++n) {
#pragma unroll
      for (int m = 0; m < S::kTilesM; ++m) {
        mma_bf16(sums[m][n], now.a[m][0], now.a[m][1], now.a[m][2], now.a[m][3],
                 now.b[n / 2][n % 2 * 2], now.b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

// Sums start from the biases of their rows.
template <Product kProduct, class S>
__device__ __forceinline__ void start_sums(const Grouped& p, const Tile& at, Sums<S>& sums,
                                           int warp_m) {
#pragma unroll
  for (int m = 0; m < S::kTilesM; ++m) {
    const int row = at.row_tile * kTileRows + (warp_m * S::kTilesM + m) * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    const float upper = bias_of<kProduct>(p.bias, at.expert, row);
    const float lower = bias_of<kProduct>(p.bias, at.expert, row + 8);
#pragma unroll
    for (int n = 0; n < S::kTilesN; ++n) {
      sums[m][n][0] = sums[m][n][1] = upper;
      sums[m][n][2] = sums[m][n][3] = lower;
    }
  }
}

// Rounds and stores the tile. A transpose across the warp turns columns of tokens into rows, two columns a lane.
template <Product kProduct, class S>
__device__ __forceinline__ void store_tile(const Grouped& p, const Tile& at, const Sums<S>& sums,
                                           int warp_m, int warp_n) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int n = 0; n < S::kTilesN; ++n) {
    const int local = at.token_tile * S::kTokens + (warp_n * S::kTilesN + n) * 8 + g;
    bf16* const to = p.out + (at.first_row + local) * p.out_stride;
#pragma unroll
    for (int m = 0; m < S::kTilesM; ++m) {
      const float(&c)[4] = sums[m][n];
      const int row = at.row_tile * kTileRows + (warp_m * S::kTilesM + m) * 16;
      if constexpr (kProduct == Product::up) {
        const uint32_t pair = transpose_matrix(
            pack_bf16(glu(p.activation, c[0], c[2]), glu(p.activation, c[1], c[3])));
        if (local < at.num_rows) *reinterpret_cast<uint32_t*>(to + row / 2 + q * 2) = pair;
      } else {
        const uint32_t upper = transpose_matrix(pack_bf16(c[0], c[1]));
        const uint32_t lower = transpose_matrix(pack_bf16(c[2], c[3]));
        if (local >= at.num_rows) continue;
        if (row < p.out_columns) *reinterpret_cast<uint32_t*>(to + row + q * 2) = upper;
        if (row + 8 < p.out_columns) *reinterpret_cast<uint32_t*>(to + row + 8 + q * 2) = lower;
      }
    }
  }
}

template <Product kProduct, class S>
__global__ void __launch_bounds__(S::kThreads, 2) grouped_product(Grouped p) {
  extern __shared__ __align__(1024) char ring[];
  __shared__ int first_tile[kMaxHits + 1];
  if (threadIdx.x < 32) count_tiles<S::kTokens>(p, first_tile);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_m = warp % S::kWarpsM, warp_n = warp / S::kWarpsM;
  const int grid = static_cast<int>(gridDim.x), num_tiles = first_tile[*p.routing.num_hit];
  if (static_cast<int>(blockIdx.x) >= num_tiles) return;

  Loader<S> loader;
  int load_tile = static_cast<int>(blockIdx.x), load_step = 0, load_slot = 0;
  const auto load_next = [&] {
    if (load_tile < num_tiles) {
      if (load_step == 0) {
        loader.aim(p, find_tile<S::kTokens>(p, first_tile, load_tile));
      }
      loader.load(p, load_step, shared_address(ring) + load_slot * S::kStageBytes);
      load_slot = load_slot + 1 == S::kStages ? 0 : load_slot + 1;
      if (++load_step == p.steps) {
        load_step = 0;
        load_tile += grid;
      }
    }
    copies_commit();  // an empty group keeps the count
  };
  for (int i = 0; i < S::kStages - 1; ++i) load_next();

  int slot = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles; tile += grid) {
    Sums<S> sums = {};
    if (p.bias.values != nullptr) {
      start_sums<kProduct, S>(p, find_tile<S::kTokens>(p, first_tile, tile), sums, warp_m);
    }
    for (int step = 0; step < p.steps; ++step) {
      copies_wait<S::kStages - 2>();
      __syncthreads();  // this stage is there for all; the one before is free
      load_next();
      add_step<S>(sums, shared_address(ring) + slot * S::kStageBytes, warp_m, warp_n);
      slot = slot + 1 == S::kStages ? 0 : slot + 1;
    }
    const Tile at = find_tile<S::kTokens>(p, first_tile, tile);
    store_tile<kProduct, S>(p, at, sums, warp_m, warp_n);
  }
}

using Tokens16 = Shape<16, 8, 1, 5>;
using Tokens32 = Shape<32, 4, 2, 4>;
using Tokens64 = Shape<64, 4, 2, 4>;
using Tokens128 =
    Shape<128, 2, 2, 3>;  // 64 x 64 a warp: few reads of shared memory for each product

template <Product kProduct, class S>
void launch(const Grouped& p, cudaStream_t stream) noexcept {
  const auto kernel = grouped_product<kProduct, S>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kRingBytes);
  int blocks_each = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, kernel, S::kThreads, S::kRingBytes);
  const auto grid =
      static_cast<unsigned>(num_multiprocessors() * (blocks_each < 1 ? 1 : blocks_each));
  kernel<<<grid, S::kThreads, S::kRingBytes, stream>>>(p);
}

// Rows per tile by the mean rows of an expert, with room for the uneven: a tile too small reads weights again from L2,
// one too large multiplies zeros.
template <Product kProduct>
void launch_for_rows(const Grouped& p, int64_t rows, int experts, cudaStream_t stream) noexcept {
  if (rows <= 11 * experts) return launch<kProduct, Tokens16>(p, stream);
  if (rows <= 22 * experts) return launch<kProduct, Tokens32>(p, stream);
  if (rows <= 48 * experts) return launch<kProduct, Tokens64>(p, stream);
  launch<kProduct, Tokens128>(p, stream);
}

int64_t hidden_bytes(const MoeFfn::Problem& problem) noexcept {
  const int64_t rows = problem.max_tokens * problem.rule.top_k;
  return (rows * MoePack::padded(problem.ffn_width) * 2 + 1023) / 1024 * 1024;
}

const char* refusal(const MoeFfn::Problem& problem) noexcept {
  if (problem.weight != DType::bf16) return "needs bf16 weights";
  if (problem.width % 8 != 0) return "needs a width that is a multiple of 8";
  if (problem.width < 8 || problem.width > 16384) return "needs a width of 8 to 16384";
  if (problem.ffn_width < 1) return "needs a hidden width of at least 1";
  if (problem.rule.experts * MoePack::w13_bytes(problem.width, problem.ffn_width) >> 36 != 0) {
    return "needs all gate and up weights of a layer to be under 64 GiB";
  }
  const int64_t rows = problem.max_tokens * problem.rule.top_k;
  if (rows * MoePack::padded(problem.ffn_width) >> 35 != 0 || rows * problem.width >> 35 != 0) {
    return "needs rows of a call to be under 64 GiB";
  }
  return MoeRoute::refusal({problem.rule, problem.max_tokens});
}

int64_t workspace(const MoeFfn::Problem& problem) noexcept {
  return hidden_bytes(problem) + result_bytes(problem);
}

void run(const MoeFfn::Problem& problem, const MoeFfn::Args& args, void* stream) noexcept {
  if (args.tokens == 0) return;
  auto* const on = static_cast<cudaStream_t>(stream);
  auto* const hidden = static_cast<bf16*>(args.workspace);
  auto* const rows =
      reinterpret_cast<bf16*>(static_cast<char*>(args.workspace) + hidden_bytes(problem));
  const int64_t width = MoePack::padded(problem.width), ffn = MoePack::padded(problem.ffn_width);
  const int64_t num_rows = args.rows > 0 ? args.rows : args.tokens * problem.rule.top_k;

  Grouped up;
  up.x = static_cast<const bf16*>(args.x);
  up.row_token = args.routing.row_token;
  up.routing = args.routing;
  up.weight = static_cast<const char*>(args.w13);
  up.expert_bytes = MoePack::w13_bytes(problem.width, problem.ffn_width);
  up.side_mask = args.sides.mask;
  up.x_stride = problem.width;
  up.out_stride = ffn;
  up.inputs = static_cast<int>(problem.width);
  up.steps = static_cast<int>(width / kStepInputs);
  up.weight_rows = static_cast<int>(2 * ffn);
  up.out = hidden;
  up.bias = {args.up_bias, static_cast<int>(problem.ffn_width)};
  up.activation = problem.activation;
  launch_for_rows<Product::up>(up, num_rows, problem.rule.experts, on);
  if (args.stop == MoeFfn::Stop::after_up) return;

  Grouped down;
  down.x = hidden;
  down.routing = args.routing;
  down.weight = static_cast<const char*>(args.w2);
  down.expert_bytes = MoePack::w2_bytes(problem.width, problem.ffn_width);
  down.side_mask = args.sides.mask;
  down.x_stride = ffn;
  down.out_stride = problem.width;
  down.inputs = static_cast<int>(ffn);
  down.steps = static_cast<int>(ffn / kStepInputs);
  down.weight_rows = static_cast<int>(width);
  down.out_columns = static_cast<int>(problem.width);
  down.out = rows;
  down.bias = {args.down_bias, static_cast<int>(problem.width)};
  launch_for_rows<Product::down>(down, num_rows, problem.rule.experts, on);
  if (args.stop == MoeFfn::Stop::never) launch_combine(problem, args, {.rows = rows}, stream);
}

}  // namespace

const MoeFfn::Kernel kMoeFfnSm80 = {"moe_ffn.cuda.sm80", 80,        999, false, refusal,
                                    suits_any,           workspace, run};

}  // namespace switchyard::cuda
