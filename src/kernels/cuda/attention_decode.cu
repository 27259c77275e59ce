// SPDX-License-Identifier: Apache-2.0
// Attention of sequences that add one token: the keys are read once for all query heads of a group, and are split at
// fixed positions (every 512) over blocks, so that one long sequence fills the machine too.
//
//   work item  (sequence, span of 512 positions, kv head, tile of 8 query heads); a block takes items by its number
//   in a block  4 warps take 128 positions each, 16 at a time:
//     S^T [16 keys, 8 heads] = K Q^T     K rows go straight from memory into mma operands, z permuted alike in K and Q
//     P = exp2(S - max)                  8 x 8 pieces are transposed in registers for the next product
//     O^T [Z, 8 heads] += V^T P^T        two keys' values are interleaved in registers; z permuted, undone at the store
//   A lane copies what it will read into a ring of its own in shared memory, two tiles ahead: no barrier, no registers.
//   Spans are merged in a fixed order by the block that comes last, so a token's bits depend on its own keys alone.
// Floor: the bytes of K and V of every cached position, once. Source: Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023,
// arXiv 2309.06180.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp, kBlocks = 3;  // blocks of a multiprocessor
constexpr int kSpan = 512, kShare = kSpan / kWarps,
              kTile = 16;  // positions: an item's, a warp's, a step's
constexpr int kHeads = 8;  // columns of the mma
constexpr int kDepth = 2;  // tiles on their way in each warp
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

// The softmax state of 8 heads over some keys. A lane holds heads 2 quad and 2 quad + 1; of z it holds, for each half h of
// 64 and each j, 64 h + 8 group + 2 j (elements 0 and 1) and the next (2 and 3).
template <int kZ>
struct State {
  float o[kZ / 64][4][4] = {};
  float highest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of this lane's keys; summed over the lanes at the end
};

// A lane's ring of tiles: 16-byte pieces of keys group and group + 8, and of values 2 quad, 2 quad + 1, 2 quad + 8 and
// 2 quad + 9.
template <int kZ>
struct Ring {
  static constexpr int kKeyPieces = kZ / 16, kValuePieces = kZ / 16;
  static constexpr int kTileBytes = (kKeyPieces + kValuePieces) * kWarp * 16;
  uint32_t at;  // shared address of this lane's first piece

  __device__ uint32_t key(int slot, int n, int j) const {
    return at + slot * kTileBytes + (n * (kZ / 32) + j) * kWarp * 16;
  }
  __device__ uint32_t value(int slot, int h, int i) const {
    return at + slot * kTileBytes + (kKeyPieces + h * 4 + i) * kWarp * 16;
  }
};

// 16 bytes to shared memory; zeros when they are not real (0 * garbage could be NaN).
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(real ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ uint4 load_shared(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

// Queries of the item as the B operand: head `group`, 8 values of each 32.
template <int kZ>
__device__ void load_queries(const Attend& a, const Item& item, int64_t token,
                             uint4 (&q)[kZ / 32]) {
  const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
  const int share = a.heads / a.kv_heads, first = item.head_tile * kHeads;
  const bf16* from = static_cast<const bf16*>(a.q) +
                     (token * a.heads + item.kv_head * share + first + group) * kZ + quad * 8;
#pragma unroll
  for (int j = 0; j < kZ / 32; ++j) {
    q[j] = first + group < share ? *reinterpret_cast<const uint4*>(from + j * 32)
                                 : make_uint4(0, 0, 0, 0);
  }
}

// Queues the copies of a tile of `count` positions; rows that do not exist repeat the first one's address.
template <int kZ>
__device__ void fetch(const Ring<kZ>& ring, int slot, const bf16* k, const bf16* v, int count) {
  const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int key = group + 8 * n;
    const bf16* from = k + (key < count ? key : 0) * kZ + quad * 8;
#pragma unroll
    for (int j = 0; j < kZ / 32; ++j) {
      copy_async(ring.key(slot, n, j), from + j * 32, key < count);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = 2 * quad + i % 2 + (i / 2) * 8;
    const bf16* from = v + (key < count ? key : 0) * kZ + group * 8;
#pragma unroll
    for (int h = 0; h < kZ / 64; ++h) {
      copy_async(ring.value(slot, h, i), from + h * 64, key < count);
    }
  }
}

__device__ __forceinline__ uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// An 8 x 8 matrix of bf16, two of a row in each lane, transposed.
__device__ __forceinline__ uint32_t transpose(uint32_t rows) {
  uint32_t columns;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(columns) : "r"(rows));
  return columns;
}

template <int kZ>
__device__ void score(const uint4 (&q)[kZ / 32], const Ring<kZ>& ring, int slot, float (&s)[4]) {
#pragma unroll
  for (int j = 0; j < kZ / 32; ++j) {
    const uint4 low = load_shared(ring.key(slot, 0, j)), high = load_shared(ring.key(slot, 1, j));
    mma_16816(s, low.x, high.x, low.y, high.y, q[j].x, q[j].y);
    mma_16816(s, low.z, high.z, low.w, high.w, q[j].z, q[j].w);
  }
}

// Hides keys outside [low, high), then turns scores into weights and scales what is there already.
template <int kZ>
__device__ void soften(float scale, int low, int high, float (&s)[4], State<kZ>& state) {
  const int group = threadIdx.x % kWarp / 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // head 2 quad + i: elements i (key group) and i + 2 (group + 8)
    float &first = s[i], &second = s[i + 2];
    first = group >= low && group < high ? first * scale : -INFINITY;
    second = group + 8 >= low && group + 8 < high ? second * scale : -INFINITY;
    float most = fmaxf(state.highest[i], fmaxf(first, second));
#pragma unroll
    for (int offset = 4; offset < kWarp; offset <<= 1) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
    }
    const float base = most == -INFINITY ? 0.0f : most;
    const float shrink = exp2f(state.highest[i] - base);
    state.highest[i] = most;
    first = exp2f(first - base);
    second = exp2f(second - base);
    state.total[i] = state.total[i] * shrink + first + second;
#pragma unroll
    for (int h = 0; h < kZ / 64; ++h) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state.o[h][j][i] *= shrink;
        state.o[h][j][i + 2] *= shrink;
      }
    }
  }
}

template <int kZ>
__device__ void accumulate(const float (&p)[4], const Ring<kZ>& ring, int slot, State<kZ>& state) {
  const uint32_t b0 = transpose(pack_bf16(p[0], p[1])), b1 = transpose(pack_bf16(p[2], p[3]));
#pragma unroll
  for (int h = 0; h < kZ / 64; ++h) {
    const uint4 a = load_shared(ring.value(slot, h, 0)), b = load_shared(ring.value(slot, h, 1));
    const uint4 c = load_shared(ring.value(slot, h, 2)), d = load_shared(ring.value(slot, h, 3));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t v0 = word(a, j), v1 = word(b, j), v2 = word(c, j), v3 = word(d, j);
      mma_16816(state.o[h][j], __byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632), b0, b1);
    }
  }
}

// One warp over its quarter of the item's span.
template <int kZ>
__device__ void run_warp(const Attend& a, const Item& item, const Ring<kZ>& ring,
                         State<kZ>& state) {
  const int token = a.seq_offset[item.sequence], position = a.context_len[item.sequence];
  const int32_t* table = a.block_table + int64_t{item.sequence} * a.max_blocks;
  const int start = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const int begin = item.span * kSpan + (threadIdx.x / kWarp) * kShare;
  const int end = min(begin + kShare, position + 1);
  int at = max(begin, start / kTile * kTile);
  if (at >= end) return;
  // Lane i finds the row (of all blocks, heads and positions) where the warp's i-th tile begins: one round trip for all.
  // A tile's positions share a block.
  const int own = begin + static_cast<int>(threadIdx.x % kWarp) * kTile;
  int32_t row = 0;
  if (own >= at && own < end) {
    const int32_t block = table[own / a.block_tokens];
    row = (block * a.kv_heads + item.kv_head) * a.block_tokens + own % a.block_tokens;
  }
  const auto offset = [&](int tile_at) {
    return int64_t{__shfl_sync(kAllLanes, row, (tile_at - begin) / kTile)} * kZ;
  };
  const auto* k_cache = static_cast<const bf16*>(a.k_cache);
  const auto* v_cache = static_cast<const bf16*>(a.v_cache);
  const auto fetch_at = [&](int tile_at, int slot) {
    if (tile_at < end) {
      const int64_t first = offset(tile_at);
      fetch<kZ>(ring, slot, k_cache + first, v_cache + first, end - tile_at);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch_at(at + d * kTile, d);
  uint4 q[kZ / 32];
  load_queries<kZ>(a, item, token, q);
  for (int slot = 0; at < end; at += kTile, slot = slot + 1 < kDepth ? slot + 1 : 0) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    float s[4] = {};
    score<kZ>(q, ring, slot, s);
    soften<kZ>(a.scale * kLog2e, start - at, end - at, s, state);
    accumulate<kZ>(s, ring, slot, state);
    fetch_at(at + kDepth * kTile, slot);
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// The warps' rings, and, when a warp is through with its tiles, what it hands over in the place of its ring: per head Z values
// (rows are padded, so that fewer lanes meet in a bank).
template <int kZ>
struct Shared {
  alignas(16) unsigned char ring[kWarps][kDepth * Ring<kZ>::kTileBytes];
  float highest[kWarps][kHeads], total[kWarps][kHeads];
  float most[kHeads], sum[kHeads];  // of all warps, or of all spans
  int32_t prefix[kMaxDecodeSequences + 1];
  int is_last;

  __device__ float* values(int warp, int head) {
    return reinterpret_cast<float*>(ring[warp]) + head * (kZ + 4);
  }
};

template <int kZ>
__device__ void share(const State<kZ>& state, Shared<kZ>& shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = lane / 4, quad = lane % 4;
  __syncwarp();  // every lane has read its last tile
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float total = state.total[i];
#pragma unroll
    for (int offset = 4; offset < kWarp; offset <<= 1) {
      total += __shfl_xor_sync(kAllLanes, total, offset);
    }
    const int head = quad * 2 + i;
    if (group == 0) {
      shared.highest[warp][head] = state.highest[i];
      shared.total[warp][head] = total;
    }
#pragma unroll
    for (int h = 0; h < kZ / 64; ++h) {
      auto* to = reinterpret_cast<float4*>(shared.values(warp, head) + h * 64 + group * 8);
      const auto& o = state.o[h];
      to[0] = make_float4(o[0][i], o[0][i + 2], o[1][i], o[1][i + 2]);
      to[1] = make_float4(o[2][i], o[2][i + 2], o[3][i], o[3][i + 2]);
    }
  }
}

// Workspace: counters [B, G, tiles], then per item and head: highest, total, two unused, Z values.
__device__ int32_t* counter_of(const Attend& a, const Item& item) {
  return static_cast<int32_t*>(a.workspace) +
         (int64_t{item.sequence} * a.kv_heads + item.kv_head) * head_tiles(a) + item.head_tile;
}
__host__ __device__ constexpr int64_t counter_bytes(const Attend& a) {
  return (int64_t{kMaxDecodeSequences} * a.kv_heads * head_tiles(a) * 4 + 255) / 256 * 256;
}
template <int kZ>
__device__ float* partial_of(const Attend& a, int64_t index, int row) {
  auto* first = static_cast<char*>(a.workspace) + counter_bytes(a);
  return reinterpret_cast<float*>(first) + (index * item_rows(a, 0) + row) * (kZ + 4);
}

// 2^(a - b) where both may be minus infinity: nothing was seen.
__device__ __forceinline__ float weight_of(float highest, float most) {
  return most == -INFINITY ? 0.0f : exp2f(highest - most);
}

__device__ __forceinline__ void add_scaled(float4& to, const float4& v, float weight) {
  to.x += v.x * weight;
  to.y += v.y * weight;
  to.z += v.z * weight;
  to.w += v.w * weight;
}

// Four values of one head, divided by the head's sum.
template <int kZ>
__device__ void write_out(const Attend& a, const Item& item, int row, int z, const float4& value,
                          float total) {
  const int share = a.heads / a.kv_heads;
  const int64_t token = a.seq_offset[item.sequence];
  const int64_t head = item.kv_head * share + item.head_tile * kHeads + row;
  const float inverse = 1.0f / total;
  auto* to = static_cast<bf16*>(a.out) + (token * a.heads + head) * kZ + z;
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_bf16(value.x * inverse, value.y * inverse),
                                             pack_bf16(value.z * inverse, value.w * inverse));
}

// The four warps' states become one: the result, or this span's partial.
template <int kZ>
__device__ void merge_warps(const Attend& a, const Item& item, int64_t index, int rows,
                            Shared<kZ>& shared) {
  if (threadIdx.x < kHeads) {
    const int row = threadIdx.x;
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.highest[w][row]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = weight_of(shared.highest[w][row], most);
      sum += shared.total[w][row] * weight;
      shared.highest[w][row] = weight;
    }
    shared.most[row] = most;
    shared.sum[row] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * (kZ / 4); i += kThreads) {
    const int row = i / (kZ / 4), z = i % (kZ / 4) * 4;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      add_scaled(value, *reinterpret_cast<const float4*>(shared.values(w, row) + z),
                 shared.highest[w][row]);
    }
    if (item.spans == 1) {
      write_out<kZ>(a, item, row, z, value, shared.sum[row]);
      continue;
    }
    float* to = partial_of<kZ>(a, index, row);
    *reinterpret_cast<float4*>(to + 4 + z) = value;
    if (z == 0) *reinterpret_cast<float2*>(to) = make_float2(shared.most[row], shared.sum[row]);
  }
}

// Whether this block is the last of a sequence's spans to come; what the others wrote is then visible.
template <int kZ>
__device__ bool is_last(const Attend& a, const Item& item, Shared<kZ>& shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* counter = counter_of(a, item);
    shared.is_last = atomicAdd(counter, 1) == item.spans - 1;
    if (shared.is_last) *counter = 0;  // fit for the next launch
  }
  __syncthreads();
  __threadfence();
  return shared.is_last;
}

// All spans of a sequence become the result.
template <int kZ>
__device__ void merge_spans(const Attend& a, const Item& item, int64_t index, int rows,
                            Shared<kZ>& shared) {
  const int64_t step = int64_t{a.kv_heads} * head_tiles(a), first = index - item.span * step;
  const int lane = threadIdx.x % kWarp;
  for (int row = threadIdx.x / kWarp; row < rows; row += kWarps) {
    float most = -INFINITY, sum = 0;
    for (int s = lane; s < item.spans; s += kWarp) {
      most = fmaxf(most, __ldcg(partial_of<kZ>(a, first + s * step, row)));
    }
    most = warp_max(most);
    for (int s = lane; s < item.spans; s += kWarp) {
      const float* from = partial_of<kZ>(a, first + s * step, row);
      sum += weight_of(__ldcg(from), most) * __ldcg(from + 1);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      shared.most[row] = most;
      shared.sum[row] = sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * (kZ / 4); i += kThreads) {
    const int row = i / (kZ / 4), z = i % (kZ / 4) * 4;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int s = 0; s < item.spans; ++s) {
      const float* from = partial_of<kZ>(a, first + s * step, row);
      add_scaled(value, __ldcg(reinterpret_cast<const float4*>(from + 4 + z)),
                 weight_of(__ldcg(from), shared.most[row]));
    }
    write_out<kZ>(a, item, row, z, value, shared.sum[row]);
  }
}

template <int kZ>
__global__ void __launch_bounds__(kThreads, kBlocks) decode_kernel(Attend a) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<kZ>*>(raw);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const Ring<kZ> ring{static_cast<uint32_t>(__cvta_generic_to_shared(shared.ring[warp])) +
                      lane * 16};
  if (threadIdx.x < kWarp) scan_spans(a, shared.prefix);
  __syncthreads();
  const int64_t items = int64_t{shared.prefix[a.sequences]} * a.kv_heads * head_tiles(a);
  for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
    const Item item = find_item(a, shared.prefix, index);
    const int rows = item_rows(a, item.head_tile);
    State<kZ> state;
    __syncthreads();  // the last item's merge is over: the rings may be filled again
    run_warp<kZ>(a, item, ring, state);
    share<kZ>(state, shared);
    __syncthreads();
    merge_warps<kZ>(a, item, index, rows, shared);
    if (item.spans > 1 && is_last<kZ>(a, item, shared)) {
      merge_spans<kZ>(a, item, index, rows, shared);
    }
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
  decode_kernel<kZ><<<num_multiprocessors() * kBlocks, kThreads, kBytes, stream>>>(args);
}

}  // namespace

bool attend_fast_accepts(const Attend& args) noexcept {
  const bool width = args.head_dim == 64 || args.head_dim == 128;
  return args.dtype == DType::bf16 && width && args.block_tokens % kTile == 0;
}

int64_t attend_workspace(const Attend& shape, int64_t positions, int sequences) noexcept {
  const int64_t spans = positions / kSpan + sequences;
  return counter_bytes(shape) + spans * shape.kv_heads * head_tiles(shape) * item_rows(shape, 0) *
                                    (shape.head_dim + 4) * 4;
}

void attend_decode(const Attend& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (args.head_dim == 64) return launch<64>(args, stream);
  launch<128>(args, stream);
}

}  // namespace switchyard::cuda
