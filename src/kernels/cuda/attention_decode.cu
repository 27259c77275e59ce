// SPDX-License-Identifier: Apache-2.0
// Attention of sequences that add one token: the keys are read once for all query heads of a group, and are split at
// fixed positions (every 256) over blocks, so that one long sequence fills the machine too.
//
//   work item  (sequence, span of 256 positions, kv head, tile of 16 query heads); a block takes items by its number
//   in a block  4 warps take 64 positions each, 16 at a time:
//     S [16 heads, 16 keys] = Q K^T    K rows go straight from memory into mma operands, z permuted alike in Q and K
//     P = exp2(S - max)                stays in the registers that the next product reads
//     O [16 heads, Z] += P V           two keys' values are interleaved in registers; z permuted, undone at the store
//   spans are merged in ascending order by the block that comes last, so a token's bits depend on its own keys alone.
// Floor: the bytes of K and V of every cached position, once. Source: Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023,
// arXiv 2309.06180.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kSpan = 256, kTile = 16;  // positions of an item, and of a warp's step
constexpr int kHeads = 16;              // rows of the mma
constexpr float kLog2e = 1.4426950408889634f;

struct Item {
  int sequence, span, spans, kv_head, head_tile;
};

// Heads of an item that exist.
__host__ __device__ constexpr int item_rows(const Attend& a, int head_tile) {
  const int left = a.heads / a.kv_heads - head_tile * kHeads;
  return left < kHeads ? left : kHeads;
}
__host__ __device__ constexpr int head_tiles(const Attend& a) {
  return (a.heads / a.kv_heads + kHeads - 1) / kHeads;
}

// Spans of a sequence; none when it adds several tokens, which attend_prefill takes.
__device__ int num_spans(const Attend& a, int b) {
  if (a.seq_offset[b + 1] - a.seq_offset[b] != 1) return 0;
  return a.context_len[b] / kSpan + 1;
}

// prefix[b] = spans before sequence b; prefix[B] = all. By the first warp.
__device__ void scan_spans(const Attend& a, int32_t* prefix) {
  const int lane = threadIdx.x % kWarp;
  int before = 0;
  for (int first = 0; first < a.sequences; first += kWarp) {
    const int b = first + lane;
    const int own = b < a.sequences ? num_spans(a, b) : 0;
    int sum = own;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset <<= 1) {
      const int other = __shfl_up_sync(kAllLanes, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (b < a.sequences) prefix[b] = before + sum - own;
    before += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (lane == 0) prefix[a.sequences] = before;
}

__device__ Item find_item(const Attend& a, const int32_t* prefix, int64_t index) {
  Item item;
  item.head_tile = static_cast<int>(index % head_tiles(a));
  index /= head_tiles(a);
  item.kv_head = static_cast<int>(index % a.kv_heads);
  const auto span = static_cast<int32_t>(index / a.kv_heads);
  int low = 0, high = a.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (prefix[middle] <= span) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  item.sequence = low;
  item.span = span - prefix[low];
  item.spans = prefix[low + 1] - prefix[low];
  return item;
}

// The softmax state of 16 heads over some keys; a lane holds rows lane/4 and lane/4 + 8.
template <int kZ>
struct State {
  float o[kZ / 64][8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of this lane's keys; summed over the quad at the end
};

// Queries of the item as the A operand: [32-wide step of z][16-wide half][4].
template <int kZ>
__device__ void load_queries(const Attend& a, const Item& item, int64_t token,
                             uint32_t (&q)[kZ / 32][8]) {
  const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
  const int share = a.heads / a.kv_heads, first = item.head_tile * kHeads;
  const bf16* from = static_cast<const bf16*>(a.q) +
                     (token * a.heads + item.kv_head * share + first) * kZ + quad * 8;
  const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int j = 0; j < kZ / 32; ++j) {
    const uint4 low =
        first + group < share ? *reinterpret_cast<const uint4*>(from + group * kZ + j * 32) : zero;
    const uint4 high = first + group + 8 < share
                           ? *reinterpret_cast<const uint4*>(from + (group + 8) * kZ + j * 32)
                           : zero;
    q[j][0] = low.x, q[j][1] = high.x, q[j][2] = low.y, q[j][3] = high.y;
    q[j][4] = low.z, q[j][5] = high.z, q[j][6] = low.w, q[j][7] = high.w;
  }
}

// Where the keys or values of a tile's 16 positions begin; they share a block.
template <int kZ>
__device__ const bf16* tile_base(const Attend& a, const void* cache, const int32_t* table,
                                 int kv_head, int position) {
  const int64_t block = table[position / a.block_tokens];
  return static_cast<const bf16*>(cache) +
         ((block * a.kv_heads + kv_head) * a.block_tokens + position % a.block_tokens) * kZ;
}

template <int kZ>
struct Tile {
  uint4 k[2][kZ / 32];  // keys group and group + 8
  uint4 v[kZ / 64][4];  // keys 2 quad, 2 quad + 1, 2 quad + 8, 2 quad + 9
};

template <int kZ>
__device__ void load_keys(const bf16* k, int count, Tile<kZ>& tile) {
  const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < kZ / 32; ++j) {
      tile.k[n][j] = group + 8 * n < count
                         ? load_stream(k + (group + 8 * n) * kZ + j * 32 + quad * 8)
                         : make_uint4(0, 0, 0, 0);
    }
  }
}

template <int kZ>
__device__ void load_values(const bf16* v, int count, Tile<kZ>& tile) {
  const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int h = 0; h < kZ / 64; ++h) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 2 * quad + i % 2 + (i / 2) * 8;
      tile.v[h][i] = key < count ? load_stream(v + key * kZ + h * 64 + group * 8)
                                 : make_uint4(0, 0, 0, 0);  // 0 * garbage could be NaN
    }
  }
}

__device__ __forceinline__ uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <int kZ>
__device__ void score(const uint32_t (&q)[kZ / 32][8], const Tile<kZ>& tile, float (&s)[2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < kZ / 32; ++j) {
      const uint4& k = tile.k[n][j];
      mma_16816(s[n], q[j][0], q[j][1], q[j][2], q[j][3], k.x, k.y);
      mma_16816(s[n], q[j][4], q[j][5], q[j][6], q[j][7], k.z, k.w);
    }
  }
}

// Hides keys outside [low, high), then turns scores into weights and scales what is there already.
template <int kZ>
__device__ void soften(float scale, int low, int high, float (&s)[2][4], State<kZ>& state) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = state.highest[r];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = n * 8 + quad * 2 + i;
        float& value = s[n][r * 2 + i];
        value = key >= low && key < high ? value * scale : -INFINITY;
        most = fmaxf(most, value);
      }
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    const float base = most == -INFINITY ? 0.0f : most;
    const float shrink = exp2f(state.highest[r] - base);
    state.highest[r] = most;
    state.total[r] *= shrink;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& value = s[n][r * 2 + i];
        value = exp2f(value - base);
        state.total[r] += value;
      }
    }
#pragma unroll
    for (int h = 0; h < kZ / 64; ++h) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        state.o[h][j][r * 2] *= shrink;
        state.o[h][j][r * 2 + 1] *= shrink;
      }
    }
  }
}

template <int kZ>
__device__ void accumulate(const float (&p)[2][4], const Tile<kZ>& tile, State<kZ>& state) {
  const uint32_t a0 = pack_bf16(p[0][0], p[0][1]), a1 = pack_bf16(p[0][2], p[0][3]);
  const uint32_t a2 = pack_bf16(p[1][0], p[1][1]), a3 = pack_bf16(p[1][2], p[1][3]);
#pragma unroll
  for (int h = 0; h < kZ / 64; ++h) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t pick = j % 2 == 0 ? 0x5410 : 0x7632;
      const uint32_t b0 = __byte_perm(word(tile.v[h][0], j / 2), word(tile.v[h][1], j / 2), pick);
      const uint32_t b1 = __byte_perm(word(tile.v[h][2], j / 2), word(tile.v[h][3], j / 2), pick);
      mma_16816(state.o[h][j], a0, a1, a2, a3, b0, b1);
    }
  }
}

// One warp over its quarter of the item's span.
template <int kZ>
__device__ void run_warp(const Attend& a, const Item& item, State<kZ>& state) {
  const int token = a.seq_offset[item.sequence], position = a.context_len[item.sequence];
  const int32_t* table = a.block_table + int64_t{item.sequence} * a.max_blocks;
  const int start = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const int begin = item.span * kSpan + (threadIdx.x / kWarp) * (kSpan / kWarps);
  const int end = min(begin + kSpan / kWarps, position + 1);
  uint32_t q[kZ / 32][8];
  load_queries<kZ>(a, item, token, q);
  int at = max(begin, start / kTile * kTile);
  if (at >= end) return;
  Tile<kZ> tile;
  load_keys<kZ>(tile_base<kZ>(a, a.k_cache, table, item.kv_head, at), end - at, tile);
  for (; at < end; at += kTile) {
    load_values<kZ>(tile_base<kZ>(a, a.v_cache, table, item.kv_head, at), end - at, tile);
    float s[2][4] = {};
    score<kZ>(q, tile, s);
    const int next = at + kTile;
    if (next < end) {
      load_keys<kZ>(tile_base<kZ>(a, a.k_cache, table, item.kv_head, next), end - next, tile);
    }
    soften<kZ>(a.scale * kLog2e, start - at, end - at, s, state);
    accumulate<kZ>(s, tile, state);
  }
}

// What warps and spans hand over: per head the highest score, the sum, and Z values.
template <int kZ>
struct Shared {
  float o[kWarps][kHeads][kZ];
  float highest[kWarps][kHeads], total[kWarps][kHeads];
  int32_t prefix[kMaxDecodeSequences + 1];
  int is_last;
};

template <int kZ>
__device__ void share(State<kZ>& state, Shared<kZ>& shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = state.total[r];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const int row = group + 8 * r;
    shared.highest[warp][row] = state.highest[r];
    shared.total[warp][row] = total;
#pragma unroll
    for (int h = 0; h < kZ / 64; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* to = &shared.o[warp][row][h * 64 + (quad * 2 + i) * 8];
#pragma unroll
        for (int j = 0; j < 8; ++j) to[j] = state.o[h][j][r * 2 + i];
      }
    }
  }
}

// Workspace: counters [B, G, tiles], then per item and head: highest, total, Z values.
__device__ int32_t* counter_of(const Attend& a, const Item& item) {
  return static_cast<int32_t*>(a.workspace) +
         (int64_t{item.sequence} * a.kv_heads + item.kv_head) * head_tiles(a) + item.head_tile;
}
__host__ __device__ constexpr int64_t counter_bytes(const Attend& a, int sequences) {
  return (int64_t{sequences} * a.kv_heads * head_tiles(a) * 4 + 255) / 256 * 256;
}
template <int kZ>
__device__ float* partial_of(const Attend& a, int64_t index) {
  auto* first = static_cast<char*>(a.workspace) + counter_bytes(a, kMaxDecodeSequences);
  return reinterpret_cast<float*>(first) + index * item_rows(a, 0) * (kZ + 2);
}

// Merges `count` states of one head in ascending order: highest and total are `stride` apart, values `stride` too.
struct Merged {
  float highest, total, value;
};
__device__ void merge(Merged& into, float highest, float total, float value) {
  const float most = fmaxf(into.highest, highest);
  const float base = most == -INFINITY ? 0.0f : most;
  const float keep = exp2f(into.highest - base), add = exp2f(highest - base);
  into = {most, into.total * keep + total * add, into.value * keep + value * add};
}

template <int kZ>
__device__ void write_out(const Attend& a, const Item& item, int row, int z, const Merged& merged) {
  const int share = a.heads / a.kv_heads;
  const int64_t token = a.seq_offset[item.sequence];
  const int64_t head = item.kv_head * share + item.head_tile * kHeads + row;
  static_cast<bf16*>(a.out)[(token * a.heads + head) * kZ + z] =
      from_f32<bf16>(merged.value / merged.total);
}

// The four warps' states become one: the result, or this span's partial.
template <int kZ>
__device__ void merge_warps(const Attend& a, const Item& item, int64_t index, int rows,
                            const Shared<kZ>& shared) {
  for (int i = threadIdx.x; i < rows * kZ; i += kThreads) {
    const int row = i / kZ, z = i % kZ;
    Merged merged{-INFINITY, 0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      merge(merged, shared.highest[w][row], shared.total[w][row], shared.o[w][row][z]);
    }
    if (item.spans == 1) {
      write_out<kZ>(a, item, row, z, merged);
      continue;
    }
    float* to = partial_of<kZ>(a, index) + row * (kZ + 2);
    to[2 + z] = merged.value;
    if (z == 0) {
      to[0] = merged.highest;
      to[1] = merged.total;
    }
  }
}

// The last block of a sequence's spans merges them all.
template <int kZ>
__device__ void merge_spans(const Attend& a, const Item& item, int64_t index, int rows,
                            Shared<kZ>& shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* counter = counter_of(a, item);
    shared.is_last = atomicAdd(counter, 1) == item.spans - 1;
    if (shared.is_last) *counter = 0;  // fit for the next launch
  }
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  const int64_t step = int64_t{a.kv_heads} * head_tiles(a);
  const int64_t first = index - item.span * step;
  for (int i = threadIdx.x; i < rows * kZ; i += kThreads) {
    const int row = i / kZ, z = i % kZ;
    Merged merged{-INFINITY, 0, 0};
    for (int s = 0; s < item.spans; ++s) {
      const float* from = partial_of<kZ>(a, first + s * step) + row * (kZ + 2);
      merge(merged, __ldcg(from), __ldcg(from + 1), __ldcg(from + 2 + z));
    }
    write_out<kZ>(a, item, row, z, merged);
  }
}

template <int kZ>
__global__ void __launch_bounds__(kThreads) decode_kernel(Attend a) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<kZ>*>(raw);
  if (threadIdx.x < kWarp) scan_spans(a, shared.prefix);
  __syncthreads();
  const int64_t items = int64_t{shared.prefix[a.sequences]} * a.kv_heads * head_tiles(a);
  for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
    const Item item = find_item(a, shared.prefix, index);
    const int rows = item_rows(a, item.head_tile);
    State<kZ> state;
    run_warp<kZ>(a, item, state);
    __syncthreads();  // the last item's merge is over
    share<kZ>(state, shared);
    __syncthreads();
    merge_warps<kZ>(a, item, index, rows, shared);
    if (item.spans > 1) merge_spans<kZ>(a, item, index, rows, shared);
  }
}

template <int kZ>
void launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(Shared<kZ>);
  static const bool raised = [] {
    return cudaFuncSetAttribute(decode_kernel<kZ>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kBytes) == cudaSuccess;
  }();
  if (!raised) return;  // the error is the device's, and is told at the step's synchronisation
  decode_kernel<kZ><<<num_multiprocessors() * 2, kThreads, kBytes, stream>>>(args);
}

}  // namespace

bool attend_fast_accepts(const Attend& args) noexcept {
  const bool width = args.head_dim == 64 || args.head_dim == 128;
  return args.dtype == DType::bf16 && width && args.block_tokens % kTile == 0;
}

int64_t attend_workspace(const Attend& shape, int64_t positions, int sequences) noexcept {
  const int64_t spans = positions / kSpan + sequences;
  return counter_bytes(shape, kMaxDecodeSequences) + spans * shape.kv_heads * head_tiles(shape) *
                                                         item_rows(shape, 0) *
                                                         (shape.head_dim + 2) * 4;
}

void attend_decode(const Attend& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (args.head_dim == 64) return launch<64>(args, stream);
  launch<128>(args, stream);
}

}  // namespace switchyard::cuda
